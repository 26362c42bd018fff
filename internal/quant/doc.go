// Package quant stores a model's frozen weights in fewer bytes, and keeps them
// in a file of units that are read back as memory.WeightSet.
//
// A linear weight W [out, in] is stored as codes with one float32 scale an
// output row, W ≈ code·scale:
//
//	bf8     E5M2   scale = amax/57344   (amax: largest magnitude of the row)
//	float8  E4M3   scale = amax/448
//	int8    int8   scale = amax/127
//	bf16    bfloat16, without scales
//	float32 float32, without scales: nothing is lost; for small models
//
// The code is the quotient W/scale (in float32) rounded to nearest, ties to
// even, and saturated. A row of zeros gets scale 1. Norms are never quantised:
// they stay bfloat16 where the source has that, and float32 otherwise. A NaN or
// an infinity in a weight is an error that names file, tensor and row.
//
// Encoder does rows, Write a whole model, on all cores and with a few MiB of
// memory a core, Open and Verify read a file back. The bytes of a file depend
// on the source, the types and the format's version alone. An Encoder belongs
// to one goroutine; Write starts goroutines and waits for them.
package quant
