#include "services/gateway/tokenizer/chat_template.h"

#include <algorithm>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "services/common/base/client_text.h"
#include "services/common/base/status_macros.h"
#include "services/common/base/utf8.h"

namespace tandem::gateway {
namespace {

// What the templates' `trim` (Python's str.strip) takes for white space.
constexpr std::string_view kWhiteSpace[] = {
    "\t",     "\n",     "\v",     "\f",     "\r",     "\x1C",   "\x1D",   "\x1E",
    "\x1F",   " ",      "\u0085", "\u00A0", "\u1680", "\u2000", "\u2001", "\u2002",
    "\u2003", "\u2004", "\u2005", "\u2006", "\u2007", "\u2008", "\u2009", "\u200A",
    "\u2028", "\u2029", "\u202F", "\u205F", "\u3000",
};

std::string_view Trim(std::string_view text) {
  const auto starts = [&](std::string_view space) { return text.starts_with(space); };
  const auto ends = [&](std::string_view space) { return text.ends_with(space); };
  const auto end = std::end(kWhiteSpace);
  for (auto it = std::begin(kWhiteSpace);
       (it = std::find_if(std::begin(kWhiteSpace), end, starts)) != end;) {
    text.remove_prefix(it->size());
  }
  for (auto it = std::begin(kWhiteSpace);
       (it = std::find_if(std::begin(kWhiteSpace), end, ends)) != end;) {
    text.remove_suffix(it->size());
  }
  return text;
}

absl::StatusOr<uint32_t> FindMarker(const Tokenizer& tokenizer, std::string_view piece) {
  const std::optional<uint32_t> id = tokenizer.FindPiece(piece);
  if (id) return *id;
  return absl::FailedPreconditionError(absl::StrFormat(
      "the model's vocabulary has no piece %s: it cannot chat, use Generate", std::string(piece)));
}

constexpr std::string_view kStartOfImage = "<start_of_image>";
constexpr std::string_view kEndOfImage = "<end_of_image>";

// The text between two markers, the role's line left out.
struct Turn {
  std::string_view role;  // "user", "model" or "developer"
  std::string text;
  std::vector<Mark> marks;
  bool goes_on = false;  // what follows it follows without blank lines
};

// The rows of a picture or of a crop.
void AppendView(Turn& turn) {
  turn.text += "\n\n";
  turn.marks.push_back({turn.text.size(), std::string(kStartOfImage), true});
  turn.marks.push_back({turn.text.size(), std::string(kEndOfImage)});
  turn.text += "\n\n";
}

void AppendPicture(uint32_t num_crops, Turn& turn) {
  if (num_crops == 0) return AppendView(turn);
  turn.text += "Here is the original image ";
  AppendView(turn);
  turn.text += " and here are some crops to help you see better ";
  for (uint32_t i = 0; i < num_crops; ++i) {
    if (i > 0) turn.text += " ";
    AppendView(turn);
  }
}

// Appends a message with pictures, whose crops are the first of `num_crops`, and takes them from
// there.
void AppendWithPictures(const Message& message, std::span<const uint32_t>& num_crops, Turn& turn) {
  size_t from = 0;
  for (const size_t at : message.pictures) {
    turn.text += Trim(std::string_view(message.content).substr(from, at - from));
    from = at;
    AppendPicture(num_crops.empty() ? 0 : num_crops.front(), turn);
    if (!num_crops.empty()) num_crops = num_crops.subspan(1);
  }
  turn.text += Trim(std::string_view(message.content).substr(from));
}

// The turn of a message's role; empty: an unknown role.
std::string_view TurnRole(std::string_view role) {
  if (role == "user" || role == "system") return "user";
  if (role == "assistant" || role == "model") return "model";
  return role == "developer" ? "developer" : "";
}

constexpr std::string_view kStartOfTurn = "<start_of_turn>";
constexpr std::string_view kEndOfTurn = "<end_of_turn>";

// `num_crops`: as PicturePlaces has them.
absl::StatusOr<std::vector<Turn>> MakeTurns(const std::vector<Message>& messages,
                                            std::span<const uint32_t> num_crops) {
  if (messages.empty()) return absl::InvalidArgumentError("messages: there are none");
  std::vector<Turn> turns;
  for (size_t i = 0; i < messages.size(); ++i) {
    const auto& [role, content, marks, pictures] = messages[i];
    if (const auto bad = FindInvalidUtf8(content)) {
      return absl::InvalidArgumentError(
          absl::StrFormat("messages[%d].content: not UTF-8 at byte %d", i, *bad));
    }
    const std::string_view turn_role = TurnRole(role);
    if (turn_role.empty()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("messages[%d].role: \"%s\" is unknown; use system, user or assistant", i,
                          ClientText(role)));
    }
    // A leading system message is untrimmed, as in Gemma's template.
    const bool whole = !marks.empty() || (i == 0 && role == "system");
    if (turns.empty() || turns.back().role != turn_role) {
      turns.push_back({.role = turn_role});
    } else if (!turns.back().goes_on) {
      turns.back().text += "\n\n";
    }
    Turn& turn = turns.back();
    if (!pictures.empty()) {
      AppendWithPictures(messages[i], num_crops, turn);
      continue;
    }
    turn.goes_on = turn.goes_on || !marks.empty();
    for (const Mark& mark : marks) turn.marks.push_back({turn.text.size() + mark.at, mark.piece});
    turn.text += whole ? std::string_view(content) : Trim(content);
  }
  return turns;
}

// Calls `mark` with each marker and `append` with the text between two of them, in order.
template <class Mark, class Append>
absl::Status Render(const std::vector<Turn>& turns, const Mark& mark, const Append& append) {
  for (const Turn& turn : turns) {
    TANDEM_RETURN_IF_ERROR(mark(kStartOfTurn, false));
    // The text between two markers is encoded as one.
    std::string text = std::string(turn.role) + "\n";
    size_t from = 0;
    for (const auto& [at, piece, picture] : turn.marks) {
      text.append(turn.text, from, at - from);
      from = at;
      if (!text.empty()) TANDEM_RETURN_IF_ERROR(append(text));
      TANDEM_RETURN_IF_ERROR(mark(piece, picture));
      text.clear();
    }
    text.append(turn.text, from);
    TANDEM_RETURN_IF_ERROR(append(text));
    if (turn.role == "model" && &turn == &turns.back()) return absl::OkStatus();  // stays open
    TANDEM_RETURN_IF_ERROR(mark(kEndOfTurn, false));
    TANDEM_RETURN_IF_ERROR(append("\n"));
  }
  TANDEM_RETURN_IF_ERROR(mark(kStartOfTurn, false));
  return append("model\n");
}

}  // namespace

absl::StatusOr<std::vector<uint32_t>> RenderChat(const Tokenizer& tokenizer, int32_t bos_token_id,
                                                 const std::vector<Message>& messages,
                                                 size_t max_tokens, PicturePlaces* pictures) {
  std::span<const uint32_t> num_crops;
  if (pictures != nullptr) num_crops = pictures->num_crops;
  TANDEM_ASSIGN_OR_RETURN(const std::vector<Turn> turns, MakeTurns(messages, num_crops));
  // Also where no turn ends.
  TANDEM_RETURN_IF_ERROR(FindMarker(tokenizer, kEndOfTurn).status());

  std::vector<uint32_t> ids;
  if (bos_token_id >= 0) ids.push_back(static_cast<uint32_t>(bos_token_id));
  const auto mark = [&](std::string_view marker, bool picture) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(const uint32_t id, FindMarker(tokenizer, marker));
    ids.push_back(id);
    if (!picture) return absl::OkStatus();
    pictures->first.push_back(static_cast<uint32_t>(ids.size()));
    ids.insert(ids.end(), pictures->num_rows, kPictureToken);
    if (ids.size() <= max_tokens) return absl::OkStatus();
    return absl::OutOfRangeError(absl::StrFormat("more than %d tokens", max_tokens));
  };
  const auto append = [&](const std::string& text) -> absl::Status {
    const size_t left = max_tokens - std::min(max_tokens, ids.size());
    TANDEM_ASSIGN_OR_RETURN(const std::vector<uint32_t> encoded, tokenizer.Encode(text, left));
    ids.insert(ids.end(), encoded.begin(), encoded.end());
    return absl::OkStatus();
  };
  TANDEM_RETURN_IF_ERROR(Render(turns, mark, append));
  return ids;
}

absl::StatusOr<std::string> RenderChatText(const std::vector<Message>& messages) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<Turn> turns, MakeTurns(messages, /*num_crops=*/{}));
  std::string rendered;
  const auto mark = [&](std::string_view marker, bool /*picture*/) {
    rendered += marker;
    return absl::OkStatus();
  };
  const auto append = [&](const std::string& text) {
    rendered += text;
    return absl::OkStatus();
  };
  TANDEM_RETURN_IF_ERROR(Render(turns, mark, append));
  return rendered;
}

}  // namespace tandem::gateway
