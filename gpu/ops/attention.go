package ops

import (
	"math"

	"longship/gpu"
	"longship/gpu/blas"
	"longship/gpu/tensor"
)

// Attention is O = softmax(Scale · Q·Kᵀ) · V per head, in tiles with a running
// softmax, so that memory grows with the tokens and not with their square.
//
//	Q, O [B·Sq, H·hd], K, V [B·Sk, Hkv·hd]; rows may lie apart, so all three can
//	be column ranges of one projection
//	LSE [B, H, Sq]  logarithm of the sum of exponentials, saved for the backward;
//	                may be absent where there is none
//
// Query head h reads key head h·Hkv/H (grouped queries where KVHeads < Heads).
// With Causal, query i sees keys up to i (Sq = Sk). Keys [B, 2] I32 gives each
// sample's range of valid keys, from and to. A row that sees no key gives zeros
// and -Inf in LSE. Source: Dao, FlashAttention-2, arXiv 2307.08691.
type Attention struct {
	O, Q, K, V, LSE tensor.Tensor
	Batch           int
	Heads           int
	KVHeads         int     // 0: as Heads
	Scale           float32 // 0: 1/sqrt(hd)
	Causal          bool
	Keys            tensor.Tensor
}

// Name is "attention".
func (Attention) Name() string { return "attention" }

// Check demands shapes that fit.
func (k Attention) Check() error {
	var c check
	c.attention(k)
	c.matrix("o", k.O, k.Q.Rows(), k.Q.Cols())
	if k.LSE.Valid() {
		c.array("lse", k.LSE, tensor.F32, k.Q.Rows()*k.Heads)
	}
	return c.err
}

func (c *check) attention(k Attention) {
	n, kv := k.Q.Rows(), k.kvHeads()
	c.matrix("q", k.Q, n, k.Q.Cols())
	c.divides("columns of q over heads", k.Q.Cols(), k.Heads)
	c.divides("query heads over key heads", k.Heads, kv)
	c.divides("rows of q over samples", n, k.Batch)
	c.divides("rows of k over samples", k.K.Rows(), k.Batch)
	if c.err != nil {
		return
	}
	c.matrix("k", k.K, k.K.Rows(), kv*k.Q.Cols()/k.Heads)
	c.matrix("v", k.V, k.K.Rows(), kv*k.Q.Cols()/k.Heads)
	c.that(!k.Causal || n == k.K.Rows(), "causal with %d rows of q and %d of k", n, k.K.Rows())
	if k.Keys.Valid() {
		c.array("keys", k.Keys, tensor.I32, 2*k.Batch)
	}
}

func (k Attention) kvHeads() int {
	if k.KVHeads == 0 {
		return k.Heads
	}
	return k.KVHeads
}

// Cost is that of the two products over the keys seen.
func (k Attention) Cost() gpu.Cost {
	n := int64(k.Q.Len()) * int64(k.K.Rows()/k.Batch)
	if k.Causal {
		n /= 2
	}
	return gpu.Cost{FLOPs: 4 * n, Bytes: k.Q.Bytes() + k.K.Bytes() + k.V.Bytes() + k.O.Bytes()}
}

const (
	queryTile = 64
	keyTile   = 128
)

// Host works on tiles of queries side by side, each over its keys in order.
func (k Attention) Host(w gpu.Workers) error {
	a := newHeads(k)
	o, lse := open(k.O), open(k.LSE)
	tiles := (a.sq + queryTile - 1) / queryTile
	w.For(k.Batch*k.Heads*tiles, 1, func(lo, hi int) {
		t := newTile()
		for i := lo; i < hi; i++ {
			b, h, q0 := i/tiles/k.Heads, i/tiles%k.Heads, i%tiles*queryTile
			q1 := min(q0+queryTile, a.sq)
			out := a.queries(o, b, h, q0, q1)
			var saved []float32
			if lse.valid() {
				at := (b*k.Heads + h) * a.sq
				saved = lse.data[at+q0 : at+q1]
			}
			t.forward(a, b, h, q0, q1, out, saved)
		}
	})
	return nil
}

// heads is the geometry of one attention on the host.
type heads struct {
	q, k, v   rows
	hd        int
	sq, sk    int
	perKV     int // query heads of a key head
	scale     float32
	causal    bool
	keyRanges []int32
}

func newHeads(k Attention) *heads {
	a := &heads{q: open(k.Q), k: open(k.K), v: open(k.V), causal: k.Causal, scale: k.Scale}
	a.hd = a.q.cols / k.Heads
	a.sq, a.sk = a.q.n/k.Batch, a.k.n/k.Batch
	a.perKV = k.Heads / k.kvHeads()
	if a.scale == 0 {
		a.scale = float32(1 / math.Sqrt(float64(a.hd)))
	}
	if k.Keys.Valid() {
		a.keyRanges = tensor.Host[int32](k.Keys)
	}
	return a
}

// queries returns rows [q0,q1) of sample b, head h of a tensor shaped like Q.
func (a *heads) queries(r rows, b, h, q0, q1 int) blas.Matrix {
	return blas.Matrix{Data: r.data[(b*a.sq+q0)*r.stride+h*a.hd:], Rows: q1 - q0, Cols: a.hd, Stride: r.stride}
}

// keys returns rows [k0,k1) of sample b, key head g of a tensor shaped like K.
func (a *heads) keys(r rows, b, g, k0, k1 int) blas.Matrix {
	return blas.Matrix{Data: r.data[(b*a.sk+k0)*r.stride+g*a.hd:], Rows: k1 - k0, Cols: a.hd, Stride: r.stride}
}

// seen returns the keys [from, to) that query i of sample b sees.
func (a *heads) seen(b, i int) (from, to int) {
	from, to = 0, a.sk
	if a.keyRanges != nil {
		from, to = max(0, int(a.keyRanges[2*b])), min(a.sk, int(a.keyRanges[2*b+1]))
	}
	if a.causal {
		to = min(to, i+1)
	}
	return from, max(from, to)
}

// span returns the keys that any of the queries [q0,q1) sees.
func (a *heads) span(b, q0, q1 int) (from, to int) {
	from, _ = a.seen(b, q0)
	_, to = a.seen(b, q1-1)
	return from, max(from, to)
}

// tile is the scratch of one worker: scores of a tile and its running softmax.
type tile struct {
	scores   []float32
	top, sum []float32 // per query: largest score, sum of exponentials below it
}

func newTile() *tile {
	return &tile{scores: make([]float32, queryTile*keyTile), top: make([]float32, queryTile), sum: make([]float32, queryTile)}
}

var minusInf = float32(math.Inf(-1))

// forward computes the output of queries [q0,q1) of sample b, head h.
func (t *tile) forward(a *heads, b, h, q0, q1 int, out blas.Matrix, lse []float32) {
	g := h / a.perKV
	q := a.queries(a.q, b, h, q0, q1)
	n := q1 - q0
	for i := range n {
		t.top[i], t.sum[i] = minusInf, 0
		clear(out.Data[i*out.Stride : i*out.Stride+a.hd])
	}
	from, to := a.span(b, q0, q1)
	for k0 := from; k0 < to; k0 += keyTile {
		k1 := min(k0+keyTile, to)
		p := blas.Matrix{Data: t.scores, Rows: n, Cols: k1 - k0, Stride: keyTile}
		blas.Gemm(blas.Serial{}, a.scale, q, a.keys(a.k, b, g, k0, k1).T(), 0, p)
		for i := range n {
			lo, hi := a.seen(b, q0+i)
			t.soften(i, p.Data[i*keyTile:i*keyTile+p.Cols], lo-k0, hi-k0, out.Data[i*out.Stride:i*out.Stride+a.hd])
		}
		blas.Gemm(blas.Serial{}, 1, p, a.keys(a.v, b, g, k0, k1), 1, out)
	}
	for i := range n {
		if lse != nil {
			lse[i] = t.top[i] + float32(math.Log(float64(t.sum[i])))
		}
		if t.sum[i] == 0 {
			continue
		}
		r := 1 / t.sum[i]
		for j, v := range out.Data[i*out.Stride : i*out.Stride+a.hd] {
			out.Data[i*out.Stride+j] = v * r
		}
	}
}

// soften turns the scores of query i into exponentials below the largest so
// far, and brings what was summed before to that level. Only [lo,hi) is seen.
func (t *tile) soften(i int, s []float32, lo, hi int, out []float32) {
	lo, hi = max(lo, 0), min(hi, len(s))
	if lo >= hi {
		clear(s)
		return
	}
	clear(s[:lo])
	clear(s[hi:])
	top := t.top[i]
	for _, v := range s[lo:hi] {
		top = max(top, v)
	}
	if top == minusInf {
		clear(s)
		return
	}
	if was := t.top[i]; top != was {
		shrink := exp32(was - top)
		t.sum[i] *= shrink
		for j := range out {
			out[j] *= shrink
		}
		t.top[i] = top
	}
	var sum float32
	for j, v := range s[lo:hi] {
		e := exp32(v - top)
		s[lo+j] = e
		sum += e
	}
	t.sum[i] += sum
}
