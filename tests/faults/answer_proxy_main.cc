// answer_proxy: stands between a gateway and a worker and spoils one answer at each SIGUSR1.
#include <pthread.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <csignal>
#include <string>
#include <thread>

#include "tests/integration/answer_proxy.h"

namespace {

using Answer = tandem::worker::v1::ExecuteResponse;

// How often the answer is sent; `turn` counts the spoilt answers.
int Spoil(Answer& answer, int turn, std::chrono::milliseconds late) {
  switch (turn % 6) {
    case 0:
      std::this_thread::sleep_for(late);
      return 1;
    case 1:
      return 2;
    case 2:
      answer.set_step_id(answer.step_id() ^ 1);
      return 1;
    case 3:
      answer.set_segment_index(answer.segment_index() + 1);
      return 1;
    case 4:
      answer.set_epoch(answer.epoch() + 1);
      return 1;
    default:
      return 0;
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::string listen, worker;
  int late_ms = 0;
  int turn = 0;  // only the thread that passes answers on changes it
  CLI::App app(
      "Passes a gateway's calls on to a worker; at each SIGUSR1 the next answer is late, sent "
      "twice, of another step, segment or epoch, or lost, in turn.");
  app.add_option("--listen", listen, "unix:PATH")->required();
  app.add_option("--worker", worker, "Path of the worker's socket")->required();
  app.add_option("--late-ms", late_ms, "How long a late answer is kept")
      ->check(CLI::PositiveNumber);
  app.add_option("--first", turn,
                 "How the first answer is spoilt: 0 late, 1 twice, 2 another step, 3 segment, 4 "
                 "epoch, 5 lost")
      ->check(CLI::Range(0, 5));
  CLI11_PARSE(app, argc, argv);
  // Before there are threads, which inherit it.
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGUSR1, SIGTERM, SIGINT}) sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::atomic<int> due = 0;
  tandem::testing::AnswerProxy proxy(listen.substr(listen.find(':') + 1), worker);
  proxy.SetFault([&](Answer& answer) {
    if (due.load() == 0) return 1;
    --due;
    return Spoil(answer, turn++, std::chrono::milliseconds(late_ms));
  });
  for (int signal = 0; sigwait(&signals, &signal) == 0 && signal == SIGUSR1;) ++due;
  return 0;
}
