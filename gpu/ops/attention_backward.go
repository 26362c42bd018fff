package ops

import (
	"longship/gpu"
	"longship/gpu/blas"
	"longship/gpu/tensor"
)

// AttentionBackward is the gradient of Attention, whose arguments it repeats.
// It recomputes the probabilities from LSE:
//
//	P = exp(Scale·Q·Kᵀ - LSE),  D = Σ_columns DO·O
//	DV = Pᵀ·DO,  DS = P·(DO·Vᵀ - D),  DQ = Scale·DS·K,  DK = Scale·DSᵀ·Q
//
// DQ, DK, DV have the shapes of Q, K, V and are assigned; they must not overlap
// what is read. Delta [B, H, Sq] is scratch for D.
type AttentionBackward struct {
	DQ, DK, DV, DO  tensor.Tensor
	O, Q, K, V, LSE tensor.Tensor
	Delta           tensor.Tensor
	Batch           int
	Heads           int
	KVHeads         int
	Scale           float32
	Causal          bool
	Keys            tensor.Tensor
}

// Name is "attention_backward".
func (AttentionBackward) Name() string { return "attention_backward" }

func (k AttentionBackward) forward() Attention {
	return Attention{O: k.O, Q: k.Q, K: k.K, V: k.V, LSE: k.LSE, Batch: k.Batch, Heads: k.Heads,
		KVHeads: k.KVHeads, Scale: k.Scale, Causal: k.Causal, Keys: k.Keys}
}

// Check demands shapes that fit.
func (k AttentionBackward) Check() error {
	var c check
	c.attention(k.forward())
	n, cols := k.Q.Rows(), k.Q.Cols()
	c.matrix("o", k.O, n, cols)
	c.matrix("do", k.DO, n, cols)
	c.matrix("dq", k.DQ, n, cols)
	c.matrix("dk", k.DK, k.K.Rows(), k.K.Cols())
	c.matrix("dv", k.DV, k.K.Rows(), k.K.Cols())
	c.array("lse", k.LSE, tensor.F32, n*k.Heads)
	c.array("delta", k.Delta, tensor.F32, n*k.Heads)
	return c.err
}

// Cost is that of five products over the keys seen.
func (k AttentionBackward) Cost() gpu.Cost {
	c := k.forward().Cost()
	return gpu.Cost{FLOPs: c.FLOPs / 2 * 5, Bytes: 2 * c.Bytes}
}

// keyChunk is how many keys' score gradients are held at once (Sq of each).
const keyChunk = 512

// Host takes a head and a chunk of its keys at a time. Tiles of keys compute
// their DV and DK over all queries and leave DS; then tiles of queries add up
// DQ from it. So every sum has one owner and one order.
func (k AttentionBackward) Host(w gpu.Workers) error {
	a := newHeads(k.forward())
	b := &backward{heads: a, o: open(k.O), do: open(k.DO), dq: open(k.DQ), dk: open(k.DK), dv: open(k.DV),
		lse: k.LSE.Float32s(), delta: k.Delta.Float32s(), ds: make([]float32, a.sq*min(keyChunk, a.sk))}
	b.rowDots(w, k.Heads)
	for item := range k.Batch {
		for h := range k.Heads {
			for c0 := 0; c0 < a.sk; c0 += keyChunk {
				b.chunk(w, item, h, k.Heads, c0, min(c0+keyChunk, a.sk))
			}
		}
	}
	return nil
}

type backward struct {
	*heads
	o, do, dq, dk, dv rows
	lse, delta        []float32
	ds                []float32 // [sq, width of the chunk]
}

// rowDots computes D, one value a query and head.
func (k *backward) rowDots(w gpu.Workers, n int) {
	eachRow(w, k.do.n, k.do.cols, func(i int) {
		b, s := i/k.sq, i%k.sq
		g, o := k.do.row(i), k.o.row(i)
		for h := range n {
			var sum float64
			for j := h * k.hd; j < (h+1)*k.hd; j++ {
				sum += float64(g[j]) * float64(o[j])
			}
			k.delta[(b*n+h)*k.sq+s] = float32(sum)
		}
	})
}

// chunk adds what keys [c0,c1) of sample b contribute through query head h.
func (k *backward) chunk(w gpu.Workers, b, h, n, c0, c1 int) {
	g := h / k.perKV
	width := c1 - c0
	at := (b*n + h) * k.sq
	lse, delta := k.lse[at:at+k.sq], k.delta[at:at+k.sq]
	var first float32 // the first query head of a key head assigns DK and DV
	if h%k.perKV != 0 {
		first = 1
	}
	w.For(width, keyTile, func(lo, hi int) {
		p := make([]float32, queryTile*keyTile)
		k0, k1 := c0+lo, c0+hi
		kk, vv := k.keys(k.k, b, g, k0, k1), k.keys(k.v, b, g, k0, k1)
		beta := first
		for q0 := 0; q0 < k.sq; q0 += queryTile {
			q1 := min(q0+queryTile, k.sq)
			q, do := k.queries(k.q, b, h, q0, q1), k.queries(k.do, b, h, q0, q1)
			prob := blas.Matrix{Data: p, Rows: q1 - q0, Cols: k1 - k0, Stride: keyTile}
			ds := blas.Matrix{Data: k.ds[q0*width+lo:], Rows: q1 - q0, Cols: k1 - k0, Stride: width}
			blas.Gemm(blas.Serial{}, k.scale, q, kk.T(), 0, prob)
			blas.Gemm(blas.Serial{}, 1, do, vv.T(), 0, ds)
			for i := range prob.Rows {
				from, to := k.seen(b, q0+i)
				probabilities(prob.Data[i*keyTile:i*keyTile+prob.Cols], ds.Data[i*width:i*width+prob.Cols], from-k0, to-k0, lse[q0+i], delta[q0+i])
			}
			blas.Gemm(blas.Serial{}, 1, prob.T(), do, beta, k.keys(k.dv, b, g, k0, k1))
			blas.Gemm(blas.Serial{}, k.scale, ds.T(), q, beta, k.keys(k.dk, b, g, k0, k1))
			beta = 1
		}
	})
	w.For(k.sq, queryTile, func(q0, q1 int) {
		ds := blas.Matrix{Data: k.ds[q0*width:], Rows: q1 - q0, Cols: width, Stride: width}
		beta := float32(1)
		if c0 == 0 {
			beta = 0
		}
		blas.Gemm(blas.Serial{}, k.scale, ds, k.keys(k.k, b, g, c0, c1), beta, k.queries(k.dq, b, h, q0, q1))
	})
}

// probabilities turns a query's scores into P and dP into dS; only [lo,hi) is seen.
func probabilities(s, dp []float32, lo, hi int, lse, delta float32) {
	lo, hi = max(lo, 0), min(hi, len(s))
	if lo >= hi || lse == minusInf {
		clear(s)
		clear(dp)
		return
	}
	clear(s[:lo])
	clear(dp[:lo])
	clear(s[hi:])
	clear(dp[hi:])
	for j, v := range s[lo:hi] {
		p := exp32(v - lse)
		s[lo+j] = p
		dp[lo+j] = p * (dp[lo+j] - delta)
	}
}
