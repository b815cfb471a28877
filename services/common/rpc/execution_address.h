// Address of a worker's Execution service, from the address of its Worker service.
#pragma once

#include <cstdint>
#include <string>

namespace tandem {

// "unix:/run/gpu.sock" -> "unix:/run/gpu.sock.exec"; "host:7001" -> "host:<port>".
std::string ExecutionAddress(const std::string& worker_address, uint32_t port);

// The port of "host:port"; 0 for a unix socket.
uint32_t PortOf(const std::string& address);

}  // namespace tandem
