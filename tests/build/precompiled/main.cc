#include <vector>

int main() { return std::vector<int>{}.empty() ? 0 : 1; }
