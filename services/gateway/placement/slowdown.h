// How much slower than it was a device has become, from the times of steps.
//
// Steps differ in rows and depth, so each is compared with others like it: of its kind, with about as
// many rows, about as deep, both alone or both beside another step (lanes), which takes some of the
// memory's bandwidth.  The first of them, divided by the ratio of that time, say how long their kind
// takes.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

namespace tandem::gateway {

// What a step is compared by.
struct StepShape {
  bool decodes = false;  // every row has an output; else it is a part of one prompt
  uint32_t rows = 0;
  uint32_t depth = 0;     // mean position of its rows
  bool overlaps = false;  // another step was under way
};

// Of one device in one placement.  Pure data, single-thread.
class Slowdown {
 public:
  // A step took `seconds` on the device.
  void Took(StepShape shape, double seconds);
  // Steps of this shape take so long when nothing is slow.
  void Expect(StepShape shape, double seconds);
  // 1 where nothing is known.
  double ratio() const { return ratio_; }
  // The ratio, as measured in another placement.
  void Assume(double ratio) { ratio_ = ratio; }

 private:
  struct Usual {
    double seconds = 0.0;
    uint32_t steps = 0;
  };
  static uint64_t BucketOf(StepShape shape);

  std::unordered_map<uint64_t, Usual> usual_;
  double ratio_ = 1.0;
};

}  // namespace tandem::gateway
