//go:build cuda

#include "blas.h"

// The values of cublasLt.h that are used.
enum {
	COMPUTE_32F = 68,
	TYPE_32F = 0,
	DESC_TRANSA = 3,
	DESC_TRANSB = 4,
	PREF_WORKSPACE = 1,
	PREF_REDUCTION = 3,
	PREF_ALIGN_A = 5,
	PREF_ALIGN_B = 6,
	PREF_ALIGN_C = 7,
	PREF_ALIGN_D = 8,
	// Partial sums in float32 in the workspace, added in a step of their own.
	// Without in-place reduction, whose order is not fixed, and without partial
	// sums rounded to the output's type.
	REDUCTION_COMPUTE_TYPE = 2,
};

static int layout(const blas_functions *f, void **l, blas_matrix x, int64_t rows, int64_t cols) {
	if (x.transposed) {
		int64_t t = rows;
		rows = cols;
		cols = t;
	}
	return f->layout_create(l, x.type, (uint64_t)rows, (uint64_t)cols, x.stride);
}

#define TRY(call) do { int status = (call); if (status) return status; } while (0)

static int prefer(const blas_functions *f, void *preference, blas_matrix a, blas_matrix b, blas_matrix c, uint64_t workspace) {
	uint32_t reduction = REDUCTION_COMPUTE_TYPE;
	TRY(f->preference_set(preference, PREF_WORKSPACE, &workspace, sizeof workspace));
	TRY(f->preference_set(preference, PREF_REDUCTION, &reduction, sizeof reduction));
	TRY(f->preference_set(preference, PREF_ALIGN_A, &a.align, sizeof a.align));
	TRY(f->preference_set(preference, PREF_ALIGN_B, &b.align, sizeof b.align));
	TRY(f->preference_set(preference, PREF_ALIGN_C, &c.align, sizeof c.align));
	return f->preference_set(preference, PREF_ALIGN_D, &c.align, sizeof c.align);
}

int blas_plan_make(const blas_functions *f, void *handle, int64_t m, int64_t n, int64_t k, blas_matrix a, blas_matrix b, blas_matrix c,
	uint64_t workspace, blas_plan *plan, int *found) {
	int32_t ta = a.transposed, tb = b.transposed;
	void *preference;
	TRY(f->desc_create(&plan->desc, COMPUTE_32F, TYPE_32F));
	TRY(f->desc_set(plan->desc, DESC_TRANSA, &ta, sizeof ta));
	TRY(f->desc_set(plan->desc, DESC_TRANSB, &tb, sizeof tb));
	TRY(layout(f, &plan->la, a, m, k));
	TRY(layout(f, &plan->lb, b, k, n));
	TRY(layout(f, &plan->lc, c, m, n));
	TRY(f->preference_create(&preference));
	int status = prefer(f, preference, a, b, c, workspace);
	if (status == 0) status = f->heuristic(handle, plan->desc, plan->la, plan->lb, plan->lc, plan->lc, preference, 1, &plan->chosen, found);
	f->preference_destroy(preference);
	return status;
}

int blas_plan_run(const blas_functions *f, void *handle, blas_plan *plan, float alpha, uintptr_t a, uintptr_t b, float beta, uintptr_t c,
	uintptr_t workspace, void *stream) {
	return f->matmul(handle, plan->desc, &alpha, (void *)a, plan->la, (void *)b, plan->lb, &beta, (void *)c, plan->lc, (void *)c, plan->lc,
		plan->chosen.algo, (void *)workspace, plan->chosen.workspace, stream);
}

void blas_plan_free(const blas_functions *f, blas_plan *plan) {
	if (plan->lc) f->layout_destroy(plan->lc);
	if (plan->lb) f->layout_destroy(plan->lb);
	if (plan->la) f->layout_destroy(plan->la);
	if (plan->desc) f->desc_destroy(plan->desc);
}

size_t blas_version(const blas_functions *f) { return f->version(); }
int blas_create(const blas_functions *f, void **handle) { return f->create(handle); }
int blas_destroy(const blas_functions *f, void *handle) { return f->destroy(handle); }
