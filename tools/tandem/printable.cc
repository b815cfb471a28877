#include "tools/tandem/printable.h"

#include <algorithm>
#include <vector>

namespace tandem {

std::string ForTerminal(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool is_c0 = (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F;
    const bool is_c1 =
        byte == 0xC2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xA0;
    if (is_c0 || is_c1) {
      out += "\uFFFD";
      if (is_c1) ++i;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::string OnOneLine(std::string_view text) {
  std::string line = ForTerminal(text);
  std::replace_if(
      line.begin(), line.end(), [](char c) { return c == '\n' || c == '\t'; }, ' ');
  return line;
}

void MakePrintable(google::protobuf::Message& message) {
  using google::protobuf::FieldDescriptor;
  const auto& reflection = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    const int size = field->is_repeated() ? reflection.FieldSize(message, field) : 0;
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      if (!field->is_repeated()) MakePrintable(*reflection.MutableMessage(&message, field));
      for (int i = 0; i < size; ++i) {
        MakePrintable(*reflection.MutableRepeatedMessage(&message, field, i));
      }
    } else if (field->type() == FieldDescriptor::TYPE_STRING) {
      if (!field->is_repeated()) {
        reflection.SetString(&message, field, OnOneLine(reflection.GetString(message, field)));
      }
      for (int i = 0; i < size; ++i) {
        reflection.SetRepeatedString(&message, field, i,
                                     OnOneLine(reflection.GetRepeatedString(message, field, i)));
      }
    }
  }
}

std::string DeviceText(std::string_view device, std::string_view kind, bool emulated) {
  std::string text(device);
  if (emulated) text += kind == "gpu" ? " (software)" : " (emulated)";
  return text;
}

}  // namespace tandem
