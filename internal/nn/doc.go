// Package nn has what models share above single ops: the Linear, which is the
// one seam where quantised weights and adapters come in. A model never asks
// which kind it has.
//
// Nothing here holds device memory. Temporaries come from the arena of the
// ops.Ctx, so all of it is used from the goroutine that owns the Ctx.
package nn
