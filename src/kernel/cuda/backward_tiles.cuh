/* Where a backward kernel's operands are in shared memory: K, V, then for each stage Q and dO, somewhere behind them
 * for each stage lse and delta. A shape S says how large they are. */
#ifndef RA_KERNEL_CUDA_BACKWARD_TILES_CUH
#define RA_KERNEL_CUDA_BACKWARD_TILES_CUH

template <class S> struct backward_tiles {
    unsigned char *base;
    __device__ __forceinline__ unsigned char *k() const {
        return base;
    }
    __device__ __forceinline__ unsigned char *v() const {
        return base + S::KEY_TILE;
    }
    __device__ __forceinline__ unsigned char *q(int stage) const {
        return base + S::Q_AT + stage * 2 * S::QUERY_TILE;
    }
    __device__ __forceinline__ unsigned char *dout(int stage) const {
        return q(stage) + S::QUERY_TILE;
    }
    __device__ __forceinline__ float *lse(int stage) const {
        return (float *)(base + S::LSE_AT) + stage * 2 * S::ROWS;
    }
    __device__ __forceinline__ float *delta(int stage) const {
        return lse(stage) + S::ROWS;
    }
};

#endif
