// What CUDA C++ has no words for: the instructions of compute_80 that the
// kernels use, one function each, named after the instruction.
#pragma once

// mma is c += a·b of a warp: a 16 x 16, b 16 x 8, bf16, c 16 x 8 float32
// (mma.m16n8k16). Lane l holds rows l/4 and l/4+8 and columns 2·(l%4) and the
// next of c: c[0], c[1] of the upper row, c[2], c[3] of the lower one.
__device__ inline void mma(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// ldmatrix reads four 8 x 8 matrices of 16-bit elements from shared memory:
// lane l gives the address of row l%8 of matrix l/8. Of each matrix lane l gets
// row l/4, columns 2·(l%4) and the next.
__device__ inline void ldmatrix(unsigned (&r)[4], unsigned address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address));
}

// ldmatrixT is ldmatrix with every matrix transposed.
__device__ inline void ldmatrixT(unsigned (&r)[4], unsigned address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address));
}

// sharedAddress returns the address that ldmatrix and cpAsync take.
__device__ inline unsigned sharedAddress(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }

// cpAsync copies 16 bytes from global to shared memory in the background; with
// given false it writes zeros and reads nothing.
__device__ inline void cpAsync(unsigned to, const void* from, bool given) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(given ? 16 : 0));
}

// cpAsyncCommit closes a group of copies.
__device__ inline void cpAsyncCommit() { asm volatile("cp.async.commit_group;"); }

// cpAsyncWait waits until at most N groups of this thread are under way.
template <int N>
__device__ inline void cpAsyncWait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// ex2 is 2^x, within 2 units in the last place; subnormal results are 0.
__device__ inline float ex2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// packBF16 rounds two numbers to bf16, lo in the lower half.
__device__ inline unsigned packBF16(float lo, float hi) {
    unsigned r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
}

// roundBF16 rounds to bf16.
__device__ inline unsigned short roundBF16(float x) {
    unsigned short r;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(x));
    return r;
}

// widenF16 and roundF16 convert float16.
__device__ inline float widenF16(unsigned short x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
    return y;
}

__device__ inline unsigned short roundF16(float x) {
    unsigned short r;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x));
    return r;
}
