#include "services/gateway/constraint/schema/json_formats.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace tandem::gateway::constraint {
namespace {

// RFC 3339, 5.6, with the days of each month and leap years.
std::string Date() {
  const std::string leap_year =
      "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)";
  return absl::StrCat(
      "(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
      "|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))|",
      leap_year, "-02-29)");
}

// A leap second is the last one of a day in UTC: a local time that its offset leads to 23:59:60.
std::string LeapSecond() {
  const auto whole_hours = [](int sign) {
    std::string all;
    for (int hour = 0; hour < 24; ++hour) {
      absl::StrAppend(&all, all.empty() ? "" : "|",
                      absl::StrFormat("%02d:59:60(?:\\.[0-9]+)?%s%02d:00",
                                      (23 + sign * hour + 24) % 24, sign > 0 ? "\\+" : "-", hour));
    }
    return all;
  };
  return absl::StrCat("(?:23:59:60(?:\\.[0-9]+)?[Zz]|", whole_hours(1), "|", whole_hours(-1), ")");
}

std::string Time() {
  return absl::StrCat(
      "(?:(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]+)?"
      "(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])|",
      LeapSecond(), ")");
}

constexpr char kOctet[] = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])";
std::string Ipv4() { return absl::StrCat("(?:", kOctet, "\\.){3}", kOctet); }

// RFC 4291, 2.2.
std::string Ipv6() {
  const std::string h = "[0-9A-Fa-f]{1,4}";
  const std::string last = absl::StrCat("(?:", h, ":", h, "|", Ipv4(), ")");
  const auto ahead = [&](int most) {  // up to `most` groups and "::"
    return most == 0 ? std::string("::")
                     : absl::StrFormat("(?:%s(?::%s){0,%d})?::", h, h, most - 1);
  };
  std::string all = absl::StrCat("(?:(?:", h, ":){6}", last);
  for (int after = 5; after >= 1; --after) {
    absl::StrAppend(&all, "|", ahead(5 - after), absl::StrFormat("(?:%s:){%d}", h, after), last);
  }
  absl::StrAppend(&all, "|", ahead(5), last, "|", ahead(6), h, "|", ahead(7), ")");
  return all;
}

constexpr char kHostname[] =
    "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
    "(?:\\.[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*";

// RFC 5321's addresses at domains of two labels or more, without quoted names and address literals.
std::string Email() {
  const std::string label = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?";
  return absl::StrCat("[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*@",
                      label, "(?:\\.", label, ")+");
}

// RFC 3986, appendix A; something follows the scheme.
std::string Uri(bool reference) {
  const std::string escaped = "%[0-9A-Fa-f]{2}";
  const std::string pchar = absl::StrCat("(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|", escaped, ")");
  const std::string no_colon = absl::StrCat("(?:[A-Za-z0-9._~!$&'()*+,;=@-]|", escaped, ")");
  const std::string user = absl::StrCat("(?:[A-Za-z0-9._~!$&'()*+,;=:-]|", escaped, ")*");
  const std::string name = absl::StrCat("(?:[A-Za-z0-9._~!$&'()*+,;=-]|", escaped, ")*");
  const std::string host = absl::StrCat(
      "(?:\\[(?:", Ipv6(), "|[vV][0-9A-Fa-f]+\\.[A-Za-z0-9._~!$&'()*+,;=:-]+)\\]|", name, ")");
  const std::string authority = absl::StrCat("(?:", user, "@)?", host, "(?::[0-9]*)?");
  const std::string segments = absl::StrCat("(?:/", pchar, "*)*");
  const std::string absolute = absl::StrCat("/(?:", pchar, "+", segments, ")?");
  const std::string rest = absl::StrCat("(?:\\?(?:", pchar, "|[/?])*)?(?:#(?:", pchar, "|[/?])*)?");
  const std::string shared = absl::StrCat("//", authority, segments, "|", absolute, "|");
  const std::string full =
      absl::StrCat("[A-Za-z][A-Za-z0-9+.-]*:(?:", shared, pchar, "+", segments, ")", rest);
  if (!reference) return full;
  return absl::StrCat("(?:", full, "|(?:", shared, no_colon, "+", segments, "|)", rest, ")");
}

constexpr std::string_view kStandard[] = {"date-time",
                                          "date",
                                          "time",
                                          "duration",
                                          "email",
                                          "idn-email",
                                          "hostname",
                                          "idn-hostname",
                                          "ipv4",
                                          "ipv6",
                                          "uri",
                                          "uri-reference",
                                          "iri",
                                          "iri-reference",
                                          "uuid",
                                          "uri-template",
                                          "json-pointer",
                                          "regex",
                                          "relative-json-pointer"};

}  // namespace

std::optional<std::string> FormatPattern(std::string_view format) {
  if (format == "date-time") return absl::StrCat(Date(), "[Tt]", Time());
  if (format == "date") return Date();
  if (format == "time") return Time();
  if (format == "email") return Email();
  if (format == "uuid") {
    return "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}";
  }
  if (format == "uri") return Uri(false);
  if (format == "uri-reference") return Uri(true);
  if (format == "ipv4") return Ipv4();
  if (format == "ipv6") return Ipv6();
  if (format == "hostname") return std::string(kHostname);
  if (format == "json-pointer") return "(?:/(?:[^/~]|~[01])*)*";
  if (format == "duration") {
    const std::string time = "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)";
    const std::string day = "[0-9]+D";
    return absl::StrCat("P(?:(?:[0-9]+Y(?:[0-9]+M(?:", day, ")?)?|[0-9]+M(?:", day, ")?|", day,
                        ")(?:", time, ")?|", time, "|[0-9]+W)");
  }
  return std::nullopt;
}

bool IsStandardFormat(std::string_view format) {
  return std::find(std::begin(kStandard), std::end(kStandard), format) != std::end(kStandard);
}

}  // namespace tandem::gateway::constraint
