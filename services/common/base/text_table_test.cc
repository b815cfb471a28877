#include "services/common/base/text_table.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

TEST(TextTableTest, AlignsColumnsAndTrimsLines) {
  TextTable table({false, true, false});
  table.Add({"name", "n", "note"});
  table.Add({"a", "1234", ""});
  table.Add({"longer", "5"});
  EXPECT_EQ(table.Print("  "),
            "  name       n  note\n"
            "  a       1234\n"
            "  longer     5\n");
}

TEST(TextTableTest, PrintsNothingWithoutRows) { EXPECT_EQ(TextTable({false}).Print(), ""); }

}  // namespace
}  // namespace tandem
