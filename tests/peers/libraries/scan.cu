// CUB: a scan of many blocks in one pass, each block looking back at those before it.
#include <cub/agent/agent_scan.cuh>

using State = cub::ScanTileState<int>;
constexpr int kBytes = 1 << 12;

extern "C" __global__ void begin(const int *x, int *y, char *memory, int n) {
    State state;
    state.Init(64, memory, kBytes);
    state.InitializeStatus(21);
}

struct Add {
    __device__ int operator()(int a, int b) const { return a + b; }
};

extern "C" __global__ void scan(const int *x, int *y, char *memory, int n) {
    using Policy = cub::AgentScanPolicy<128, 4, int, cub::BLOCK_LOAD_WARP_TRANSPOSE, cub::LOAD_DEFAULT,
                                        cub::BLOCK_STORE_WARP_TRANSPOSE, cub::BLOCK_SCAN_WARP_SCANS>;
    using Agent = cub::detail::scan::AgentScan<Policy, const int *, int *, Add, cub::NullType, int, int>;
    __shared__ typename Agent::TempStorage storage;
    State state;
    state.Init(64, memory, kBytes);
    Agent(storage, x, y, Add{}, cub::NullType{}).ConsumeRange(n, state, 0);
}
