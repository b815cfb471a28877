#include "services/common/base/turn_queue.h"

#include <gtest/gtest.h>

#include <string>

namespace tandem {
namespace {

std::string PopAll(TurnQueue<char>& queue) {
  std::string order;
  while (!queue.empty()) order.push_back(queue.Pop());
  return order;
}

TEST(TurnQueueTest, SendersTakeTurns) {
  TurnQueue<char> queue;
  for (const char item : {'a', 'b', 'c'}) queue.Push("first", item);
  for (const char item : {'x', 'y'}) queue.Push("second", item);
  EXPECT_EQ(PopAll(queue), "axbyc");
}

TEST(TurnQueueTest, ErasedItemsAndTheirSendersTakeNoTurn) {
  TurnQueue<char> queue;
  for (const char item : {'a', 'b', 'c'}) queue.Push("first", item);
  queue.Push("second", 'b');
  queue.Push("third", 'z');
  EXPECT_EQ(queue.EraseIf([](char item) { return item == 'b'; }), 2u);
  EXPECT_EQ(PopAll(queue), "azc");
  EXPECT_EQ(queue.EraseIf([](char) { return true; }), 0u);
}

}  // namespace
}  // namespace tandem
