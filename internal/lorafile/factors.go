package lorafile

import (
	"errors"
	"fmt"
	"slices"
)

const partDoRA = "dora_scale"

func (p parts) has(part string) bool { _, ok := p[part]; return ok }

// matrix is a dense row-major matrix.
type matrix struct {
	rows, cols int
	v          []float32
}

func (m matrix) row(i int) []float32 { return m.v[i*m.cols : (i+1)*m.cols] }

func newMatrix(rows, cols int) matrix { return matrix{rows, cols, make([]float32, rows*cols)} }

// load reads a tensor of two dimensions.
func (p parts) load(part string) (matrix, error) {
	t := p[part]
	v, err := t.Float32()
	if err != nil {
		return matrix{}, err
	}
	for _, x := range v {
		if x-x != 0 {
			return matrix{}, t.Errorf("it has the value %v: the training diverged, the file is of no use", x)
		}
	}
	return matrix{t.Shape[0], t.Shape[1], v}, nil
}

// side returns the shape of a Kronecker factor, which is given whole or as a
// product, and its inner rank (0 where whole).
func (p parts) side(name string) (rows, cols, rank int, err error) {
	if p.has(name) {
		t := p[name]
		if len(t.Shape) != 2 || p.has(name+"_a") || p.has(name+"_b") {
			return 0, 0, 0, fmt.Errorf("%s has shape %v, or is given twice", name, t.Shape)
		}
		return t.Shape[0], t.Shape[1], 0, nil
	}
	a, b := p[name+"_a"], p[name+"_b"]
	if len(a.Shape) != 2 || len(b.Shape) != 2 || a.Shape[1] != b.Shape[0] {
		return 0, 0, 0, fmt.Errorf("%s_a %v and %s_b %v are no pair", name, a.Shape, name, b.Shape)
	}
	return a.Shape[0], b.Shape[1], a.Shape[1], nil
}

// describeLoKr: ΔW = s·kron(w1, w2), s = alpha/rank where a factor is a product,
// 1 where both are whole (LyCORIS, Yeh et al. 2023); PEFT always divides.
func (e *entry) describeLoKr(c loraConfig) error {
	if e.t.has("lokr_t2") {
		return errors.New("a LoKr with a Tucker core (lokr_t2) is for convolutions, which FLUX.2 has none of")
	}
	r1, c1, k1, err := e.t.side("lokr_w1")
	if err != nil {
		return err
	}
	r2, c2, k2, err := e.t.side("lokr_w2")
	if err != nil {
		return err
	}
	e.out, e.in = r1*r2, c1*c2
	e.rank = kronRank(r1, c1, k1) * kronRank(r2, c2, k2)
	e.scale = 1
	if k := max(k1, k2); k > 0 {
		e.scale, err = e.scaleOf(c, k)
	} else if c.Type == "LOKR" && c.Rank > 0 {
		e.scale = c.LoKr / c.Rank
	}
	return err
}

func kronRank(rows, cols, rank int) int {
	if rank > 0 {
		return min(rank, rows, cols)
	}
	return min(rows, cols)
}

// describeLoHa: ΔW = s·(w1_a·w1_b)∘(w2_a·w2_b), s = alpha/rank.
func (e *entry) describeLoHa(c loraConfig) error {
	if e.t.has("hada_t1") || e.t.has("hada_t2") {
		return errors.New("a LoHa with a Tucker core is for convolutions, which FLUX.2 has none of")
	}
	r1, c1, k1, err := e.t.side("hada_w1")
	if err != nil {
		return err
	}
	r2, c2, k2, err := e.t.side("hada_w2")
	if err != nil {
		return err
	}
	if r1 != r2 || c1 != c2 || k1 == 0 || k2 == 0 {
		return fmt.Errorf("its factors are [%d %d] and [%d %d], not of one shape", r1, c1, r2, c2)
	}
	e.out, e.in, e.rank = r1, c1, k1*k2
	e.scale, err = e.scaleOf(c, k1)
	return err
}

// factors returns A [rank, in] and B [out, rank] with ΔW = scale·B·A, exactly.
func (e *entry) factors() (a, b matrix, err error) {
	switch e.kind {
	case kindLoRA:
		if a, err = e.t.load(partA); err == nil {
			b, err = e.t.load(partB)
		}
		return a, b, err
	case kindLoKr:
		b1, a1, err := e.kronSide("lokr_w1")
		if err != nil {
			return a, b, err
		}
		b2, a2, err := e.kronSide("lokr_w2")
		if err != nil {
			return a, b, err
		}
		return kron(a1, a2), kron(b1, b2), nil
	case kindLoHa:
		var m [4]matrix
		for i, part := range []string{"hada_w1_a", "hada_w1_b", "hada_w2_a", "hada_w2_b"} {
			if m[i], err = e.t.load(part); err != nil {
				return a, b, err
			}
		}
		return hadamardRows(m[1], m[3]), transpose(hadamardRows(transpose(m[0]), transpose(m[2]))), nil
	}
	return a, b, errDoRA
}

var errDoRA = errors.New("a DoRA scales each output by the norm of base and adapter together, so it is no LoRA: it can be merged by ComfyUI, with the base in hand, or stay a DoRA in the layouts comfyui and kohya")

// kronSide returns a Kronecker factor as left·right with the fewest columns.
func (e *entry) kronSide(name string) (left, right matrix, err error) {
	if !e.t.has(name) {
		if left, err = e.t.load(name + "_a"); err == nil {
			right, err = e.t.load(name + "_b")
		}
		if err != nil || left.cols <= min(left.rows, right.cols) {
			return left, right, err
		}
		left = multiply(left, right)
	} else if left, err = e.t.load(name); err != nil {
		return left, right, err
	}
	if left.cols <= left.rows {
		return left, identity(left.cols), nil
	}
	return identity(left.rows), left, nil
}

func identity(n int) matrix {
	m := newMatrix(n, n)
	for i := range n {
		m.v[i*n+i] = 1
	}
	return m
}

func transpose(m matrix) matrix {
	t := newMatrix(m.cols, m.rows)
	for i := range m.rows {
		for j, v := range m.row(i) {
			t.v[j*m.rows+i] = v
		}
	}
	return t
}

// multiply sums in float64.
func multiply(a, b matrix) matrix {
	c := newMatrix(a.rows, b.cols)
	sum := make([]float64, b.cols)
	for i := range a.rows {
		clear(sum)
		for k, x := range a.row(i) {
			for j, y := range b.row(k) {
				sum[j] += float64(x) * float64(y)
			}
		}
		for j, s := range sum {
			c.v[i*c.cols+j] = float32(s)
		}
	}
	return c
}

// kron is the Kronecker product.
func kron(a, b matrix) matrix {
	c := newMatrix(a.rows*b.rows, a.cols*b.cols)
	for i := range a.rows {
		for k := range b.rows {
			dst := c.row(i*b.rows + k)
			for j, x := range a.row(i) {
				for l, y := range b.row(k) {
					dst[j*b.cols+l] = x * y
				}
			}
		}
	}
	return c
}

// hadamardRows returns every row of a times every row of b, element by element:
// (XᵀY)∘(ZᵀW) = hadamardRows(X, Z)ᵀ·hadamardRows(Y, W).
func hadamardRows(a, b matrix) matrix {
	c := newMatrix(a.rows*b.rows, a.cols)
	for i := range a.rows {
		for k := range b.rows {
			dst := c.row(i*b.rows + k)
			copy(dst, a.row(i))
			for j, y := range b.row(k) {
				dst[j] *= y
			}
		}
	}
	return c
}

// sameA says whether entries share one A, bit for bit.
func sameA(terms []term) (bool, error) {
	var first []byte
	for i, t := range terms {
		if t.e.kind != kindLoRA || i > 0 && !slices.Equal(t.e.t[partA].Shape, terms[0].e.t[partA].Shape) {
			return false, nil
		}
		raw, err := t.e.t[partA].Read()
		if err != nil {
			return false, err
		}
		if i == 0 {
			first = raw
		} else if !slices.Equal(first, raw) {
			return false, nil
		}
	}
	return true, nil
}
