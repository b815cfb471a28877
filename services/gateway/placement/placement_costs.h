// What steps take in a placement, and what that means for requests.  Pure data.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tandem::gateway {

// What placements are weighed by: the time of a request alone, of many at once, or the energy of a
// request alone.
enum class Favour { kLatency, kThroughput, kEnergy };

// Requests that placements are judged by: so many at once, each with a prompt and an answer.
struct ReferenceLoad {
  uint32_t prompt_tokens = 1024;
  uint32_t answer_tokens = 256;
  uint32_t streams = 1;       // 1, or as many as the engine runs together
  uint32_t chunk_rows = 512;  // rows of one prompt in a step
};

// Seconds of one step.
struct StepSeconds {
  std::vector<double> device;  // by worker of the plan
  double other = 0.0;          // from the calls to the answers, without the devices' time
  // Mean power while such steps ran one after another, by worker; 0: not readable.  Empty: not
  // measured.
  std::vector<double> watts;

  double Total() const;
};

// Measured when a placement was tried.
struct PlacementCosts {
  uint32_t prompt_rows = 0;    // of `prompt`
  uint32_t streams = 0;        // of `full`
  uint32_t depth = 0;          // position of the rows that decode; the prompt's are half as deep
  StepSeconds prompt;          // rows of one prompt
  StepSeconds lone;            // decodes one stream
  StepSeconds full;            // decodes `streams` streams
  bool prompts_apart = false;  // other devices compute prompts while these decode
  // Steps can be under way at once, each on a device of its own meanwhile.
  bool lanes = false;
};

// How many times as long as measured something takes now; 1: as long.
struct Slowdowns {
  std::vector<double> device;  // by worker of the plan
  double other = 1.0;
};

// `seconds` under `slowdowns`, which has as many workers.
double Slowed(const StepSeconds& seconds, const Slowdowns& slowdowns);

// Steps under way at once, at most, where so many devices share the layers: one on each, and one on its
// way between two of them.
uint32_t MostLanes(size_t num_devices);

// Tokens a second of all streams together, in as many steps as LanesFor says.
double DecodeRate(const PlacementCosts& costs, const ReferenceLoad& load,
                  const Slowdowns& slowdowns);
// Of the load's prompts.  Where several steps can be under way, as many as there are devices, the chunks
// of one prompt overlap; with many streams those of several do.
double PromptRate(const PlacementCosts& costs, const ReferenceLoad& load,
                  const Slowdowns& slowdowns);
// Seconds that the devices are busy for one request of the load: its prompt, and its share of the
// steps that decode.  With many streams and prompts apart, those that are busy longest.
double RequestSeconds(const PlacementCosts& costs, const ReferenceLoad& load,
                      const Slowdowns& slowdowns);

// Whether power was measured, readable or not.
bool PowerMeasured(const PlacementCosts& costs);
// Workers that steps use and whose power was not readable, by number.  REQUIRES PowerMeasured.
std::vector<size_t> WorkersWithoutPower(const PlacementCosts& costs);
// Joules of the placement's devices: for a token of the streams that decode, and for a request of the load.
// The power is a mean over the turns of all devices, so it is that of the whole time of a step.
// Nothing: not measured, or not readable of a device that steps use.
std::optional<double> TokenJoules(const PlacementCosts& costs, const ReferenceLoad& load,
                                  const Slowdowns& slowdowns);
std::optional<double> RequestJoules(const PlacementCosts& costs, const ReferenceLoad& load,
                                    const Slowdowns& slowdowns);

// How many steps the rows of `streams` streams that decode should be divided among, of MostLanes: more
// than one where such steps, under way at once on different devices, take less time together than fewer
// do, by a twentieth at least.
uint32_t LanesFor(const PlacementCosts& costs, uint32_t streams);

// A placement that can be chosen.
struct PlacementCandidate {
  std::string description;           // names it, and is shown
  std::vector<std::string> workers;  // names, of its plan
  std::optional<PlacementCosts> costs;
};

}  // namespace tandem::gateway
