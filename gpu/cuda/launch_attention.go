//go:build cuda

package cuda

import (
	"fmt"
	"math"
	"slices"

	"longship/gpu"
	"longship/gpu/ops"
	"longship/gpu/tensor"
)

// attentionKernel is one of the tensor-core kernels: rows of its own kind a
// block has, and the dynamic shared memory of its tiles.
type attentionKernel struct {
	symbol  string
	rows    int
	threads int
	shared  int
}

// tiles is the shared memory of rows of hd bf16 elements.
func tiles(rows, hd int) int { return rows * hd * 2 }

// The kernels by the padded columns of a head (64 or 128).
var (
	attentionForward = map[int]attentionKernel{
		64:  {"attention_64", 128, 128, tiles(128+64+64, 64)},
		128: {"attention_128", 128, 128, tiles(128+64+64, 128)},
	}
	// attentionSmall is for cards whose multiprocessors have 100 KB of shared
	// memory: two blocks of it fit.
	attentionSmall   = attentionKernel{"attention_128_small", 128, 128, tiles(128+32+32, 128)}
	attentionKeys    = map[int]attentionKernel{64: {"attention_keys_64", 128, 256, tiles(128, 64)}, 128: {"attention_keys_128", 128, 256, tiles(128, 128)}}
	attentionQueries = map[int]attentionKernel{64: {"attention_queries_64", 128, 256, tiles(128, 64)}, 128: {"attention_queries_128", 128, 256, tiles(128, 128)}}
)

// plainRows and plainThreads are those of the kernels without tensor cores.
const (
	plainRows       = 32
	plainThreads    = 256
	plainMaxForward = 512 // columns of a head
	plainMaxBack    = 256
)

// smallShared are the compute capabilities with 100 KB of shared memory a multiprocessor.
var smallShared = []string{"8.6", "8.9", "12.0", "12.1"}

// attentionShape is what all kernels of one attention are told of it.
type attentionShape struct {
	batch, heads, kvHeads int
	sq, sk, hd            int
	scale                 float32
	name                  string // of the type
	padded                int    // 64 or 128 where the tensor cores take it, else 0
}

// attentionShape looks at a call; ts are all tensors that are read or written by rows of heads.
func (s *stream) attentionShape(op ops.Attention, ts ...tensor.Tensor) (a attentionShape, err error) {
	a = attentionShape{batch: op.Batch, heads: op.Heads, kvHeads: op.KVHeads, sq: op.Q.Rows() / op.Batch, sk: op.K.Rows() / op.Batch,
		hd: op.Q.Cols() / op.Heads, scale: op.Scale}
	if a.kvHeads == 0 {
		a.kvHeads = a.heads
	}
	if a.scale == 0 {
		a.scale = float32(1 / math.Sqrt(float64(a.hd)))
	}
	if a.name, err = typeName(ts...); err != nil {
		return a, err
	}
	if op.Q.DType == tensor.BF16 && a.hd%8 == 0 && a.hd <= 128 && s.aligned(ts...) {
		a.padded = 64
		if a.hd > 64 {
			a.padded = 128
		}
	}
	return a, nil
}

// tail is the arguments that end every kernel's list.
func (a attentionShape) tail(scale float32, causal bool) []arg {
	return []arg{integer(a.sq), integer(a.sk), integer(a.hd), integer(a.heads / a.kvHeads), float(scale), boolean(causal)}
}

func launchAttention(s *stream, k gpu.Kernel) error {
	op := k.(ops.Attention)
	a, err := s.attentionShape(op, op.O, op.Q, op.K, op.V)
	if err != nil || op.Q.Len() == 0 {
		return err
	}
	kernel, scale := attentionForward[a.padded], a.scale*math.Log2E
	switch {
	case a.padded == 128 && slices.Contains(smallShared, s.dev.info.Libraries["compute"]):
		kernel = attentionSmall
	case a.padded == 0:
		if a.hd > plainMaxForward {
			return fmt.Errorf("heads of %d columns, at most %d", a.hd, plainMaxForward)
		}
		kernel, scale = attentionKernel{"attention_plain_" + a.name, plainRows, plainThreads, 0}, a.scale
	}
	return s.kernel(kernel.symbol, dim{blocks(a.sq, kernel.rows), a.heads, a.batch}, dim{kernel.threads}, kernel.shared,
		list(s.matrix(op.O), s.matrix(op.Q), s.matrix(op.K), s.matrix(op.V), []arg{s.ptr(op.LSE), s.ptr(op.Keys)}, a.tail(scale, op.Causal))...)
}

func launchAttentionBackward(s *stream, k gpu.Kernel) error {
	op := k.(ops.AttentionBackward)
	forward := ops.Attention{Q: op.Q, K: op.K, Batch: op.Batch, Heads: op.Heads, KVHeads: op.KVHeads, Scale: op.Scale}
	a, err := s.attentionShape(forward, op.Q, op.K, op.V, op.DO, op.O, op.DQ, op.DK, op.DV)
	if err != nil || op.Q.Len() == 0 {
		return err
	}
	keys, queries := attentionKeys[a.padded], attentionQueries[a.padded]
	if a.padded == 0 {
		if a.hd > plainMaxBack {
			return fmt.Errorf("heads of %d columns, at most %d", a.hd, plainMaxBack)
		}
		keys = attentionKernel{"attention_keys_plain_" + a.name, plainRows, plainThreads, 0}
		queries = attentionKernel{"attention_queries_plain_" + a.name, plainRows, plainThreads, 0}
	}
	rows := op.Q.Rows() * a.heads // of single heads, a warp each
	err = s.kernel("attention_delta_"+a.name, dim{blocks(rows, plainThreads/32)}, dim{plainThreads}, 0,
		list([]arg{s.ptr(op.Delta)}, s.matrix(op.DO), s.matrix(op.O), []arg{integer(a.sq), integer(a.heads), integer(a.hd), integer(rows)})...)
	if err != nil {
		return err
	}
	read := list(s.matrix(op.DO), s.matrix(op.Q), s.matrix(op.K), s.matrix(op.V),
		[]arg{s.ptr(op.LSE), s.ptr(op.Delta), s.ptr(op.Keys)}, a.tail(a.scale, op.Causal))
	err = s.kernel(keys.symbol, dim{blocks(a.sk, keys.rows), a.kvHeads, a.batch}, dim{keys.threads}, keys.shared,
		list(s.matrix(op.DK), s.matrix(op.DV), read)...)
	if err != nil {
		return err
	}
	return s.kernel(queries.symbol, dim{blocks(a.sq, queries.rows), a.heads, a.batch}, dim{queries.threads}, queries.shared,
		list(s.matrix(op.DQ), read)...)
}
