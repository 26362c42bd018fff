// cublasLt as far as it is used here, declared by ourselves: the layout of its
// interface has been the same from CUDA 11 to 13. Functions are reached by the
// addresses that were found at run time.
#include <stddef.h>
#include <stdint.h>

typedef struct {
	uint64_t algo[8];
	size_t workspace;
	int state;
	float waves;
	int reserved[4];
} blas_heuristic;

typedef struct {
	size_t (*version)(void);
	int (*create)(void **handle);
	int (*destroy)(void *handle);
	int (*matmul)(void *handle, void *desc, const void *alpha, const void *a, void *la, const void *b, void *lb, const void *beta,
		const void *c, void *lc, void *d, void *ld, const uint64_t *algo, void *workspace, size_t workspace_bytes, void *stream);
	int (*heuristic)(void *handle, void *desc, void *la, void *lb, void *lc, void *ld, void *preference, int wanted, blas_heuristic *found, int *count);
	int (*desc_create)(void **desc, int compute, int scale);
	int (*desc_set)(void *desc, int attribute, const void *value, size_t bytes);
	int (*desc_destroy)(void *desc);
	int (*layout_create)(void **layout, int type, uint64_t rows, uint64_t cols, int64_t stride);
	int (*layout_destroy)(void *layout);
	int (*preference_create)(void **preference);
	int (*preference_set)(void *preference, int attribute, const void *value, size_t bytes);
	int (*preference_destroy)(void *preference);
} blas_functions;

// blas_matrix is one operand, columns first.
typedef struct {
	int type, transposed;
	int64_t stride;
	uint32_t align;
} blas_matrix;

// blas_plan is one product with everything that cublasLt wants to be told.
typedef struct {
	void *desc, *la, *lb, *lc;
	blas_heuristic chosen;
} blas_plan;

// blas_plan_make asks the heuristic for the product of m x n x k and fills
// plan; found is the number of algorithms it had. A plan is to be freed even
// where this fails.
int blas_plan_make(const blas_functions *f, void *handle, int64_t m, int64_t n, int64_t k, blas_matrix a, blas_matrix b, blas_matrix c,
	uint64_t workspace, blas_plan *plan, int *found);
int blas_plan_run(const blas_functions *f, void *handle, blas_plan *plan, float alpha, uintptr_t a, uintptr_t b, float beta, uintptr_t c,
	uintptr_t workspace, void *stream);
void blas_plan_free(const blas_functions *f, blas_plan *plan);

size_t blas_version(const blas_functions *f);
int blas_create(const blas_functions *f, void **handle);
int blas_destroy(const blas_functions *f, void *handle);
