#include "services/common/flags/config_file.h"

#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "services/common/flags/flag_checks.h"
#include "services/common/flags/manual_page.h"
#include "services/common/flags/parse_flags.h"

#define TOML_EXCEPTIONS 0
#define TOML_HEADER_ONLY 1
// The library asserts of a table's header, or has the compiler assume (with NDEBUG), what it checks and
// refuses right after.
#define TOML_ASSERT(expr) static_assert(true)
#pragma push_macro("NDEBUG")
#undef NDEBUG
#include <toml++/toml.h>
#pragma pop_macro("NDEBUG")

namespace tandem {
namespace {

constexpr char kFlag[] = "--config";

// Where a key is, and how errors name it.
struct Place {
  std::string file;
  uint32_t line = 0;
  std::string key;
};

[[noreturn]] void Refuse(const Place& place, const std::string& reason) {
  const std::string key = place.key.empty() ? "" : place.key + ": ";
  throw CLI::ConfigError(absl::StrFormat("%s:%d: %s%s", place.file, place.line, key, reason));
}

std::string ReadText(const std::string& path) {
  if (const absl::Status status = CheckReadable(path); !status.ok()) {
    throw CLI::ConfigError(absl::StrFormat("%s: %s", kFlag, std::string(status.message())));
  }
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

toml::table ParseToml(const std::string& path) {
  toml::parse_result result = toml::parse(ReadText(path), path);
  if (!result) {
    const toml::parse_error& error = result.error();
    Refuse({path, error.source().begin.line, ""},
           absl::StrFormat("not TOML: %s (texts need quotes)", std::string(error.description())));
  }
  return std::move(result).table();
}

// A value as it would stand on the command line.
std::string TextOf(const toml::node& node, const Place& place) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_integer()) return absl::StrFormat("%d", number->get());
  if (const auto* number = node.as_floating_point()) return absl::StrFormat("%.17g", number->get());
  if (const auto* boolean = node.as_boolean()) return boolean->get() ? "true" : "false";
  Refuse(place, "a text, a number, true, false or a list of those is expected");
}

std::vector<std::string> TextsOf(const toml::node& node, const Place& place) {
  const toml::array* list = node.as_array();
  if (list == nullptr) return {TextOf(node, place)};
  std::vector<std::string> texts;
  for (const toml::node& item : *list) texts.push_back(TextOf(item, place));
  return texts;
}

// What CLI11 says of a value, without the flag's name before it: the key is named already.
std::string Reason(const CLI::Error& error, const CLI::Option& option, const std::string& value) {
  if (dynamic_cast<const CLI::ConversionError*>(&error) != nullptr) {
    return absl::StrFormat("'%s' is no %s", value, option.get_type_name());
  }
  const std::string text = error.what();
  const std::string name = option.get_name() + ": ";
  return text.starts_with(name) ? text.substr(name.size()) : text;
}

void Give(CLI::Option& option, const toml::node& node, const Place& place) {
  std::string value;
  try {
    if (!TakesValue(option)) {
      if (!node.is_boolean()) Refuse(place, "true or false is expected");
      value = TextOf(node, place);
      option.add_result(option.get_flag_value(place.key, value));
    } else {
      const std::vector<std::string> values = TextsOf(node, place);
      if (values.empty()) return;
      if (values.size() > 1 && option.get_items_expected_max() == 1) {
        Refuse(place, "one value is expected, not a list");
      }
      value = values.front();
      for (const std::string& one : values) option.add_result(one);
    }
    option.run_callback();
  } catch (const CLI::ConversionError& error) {
    Refuse(place, Reason(error, option, value));
  } catch (const CLI::ValidationError& error) {
    Refuse(place, Reason(error, option, value));
  } catch (const CLI::ArgumentMismatch& error) {
    Refuse(place, Reason(error, option, value));
  }
}

std::string NoSuchFlag(const CLI::App& app, const std::string& key) {
  std::vector<std::string> keys;
  for (const CLI::Option* option : ShownOptions(app)) {
    if (!option->get_configurable()) continue;
    keys.insert(keys.end(), option->get_lnames().begin(), option->get_lnames().end());
  }
  const std::string closest = ClosestWord(key, keys);
  return closest.empty() ? "no such flag"
                         : absl::StrFormat("no such flag; did you mean %s?", closest);
}

void ApplyFile(CLI::App& app, const std::string& path) {
  const toml::table table = ParseToml(path);
  std::map<CLI::Option*, std::pair<Place, const toml::node*>> given;
  for (const auto& [key, node] : table) {
    Place place{path, key.source().begin.line, std::string(key.str())};
    CLI::Option* option = app.get_option_no_throw("--" + place.key);
    if (option == nullptr || !option->get_configurable()) {
      Refuse(place, NoSuchFlag(app, place.key));
    }
    if (option->count() == 0) given[option] = {std::move(place), &node};
  }
  // In the order in which CLI11 takes them from a command line.
  for (CLI::Option* option : app.get_options()) {
    const auto found = given.find(option);
    if (found != given.end()) Give(*option, *found->second.second, found->second.first);
  }
}

}  // namespace

void AddConfigFlag(CLI::App& app) {
  // Callbacks run when the whole command line was read and before required flags are missed.
  app.add_option_function<std::string>(
         kFlag, [&app](const std::string& path) { ApplyFile(app, path); },
         "Read flags from this file (TOML); the command line is stronger")
      ->type_name("FILE")
      ->configurable(false);
}

}  // namespace tandem
