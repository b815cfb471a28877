// What a SIGHUP means.
#pragma once

namespace tandem {

// The terminal that the process was started from, if any.  A SIGHUP after it has gone is its end,
// as for any program; every other one asks a service to read its files again.  Thread-safe.
class StartingTerminal {
 public:
  StartingTerminal();
  // False if the process had no terminal, or ignores its end (nohup ignores SIGHUP).
  bool Gone() const;

 private:
  bool counts_ = false;
};

}  // namespace tandem
