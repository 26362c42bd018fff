package lorafile

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"

	"longship/internal/safetensors"
	"longship/stages/port"
)

// The layouts: names of BFL's single files as ai-toolkit and ComfyUI use them,
// and those of diffusers.
const (
	ComfyUI   = "comfyui"
	Diffusers = "diffusers"
)

// Layouts lists the layouts that can be written.
var Layouts = []string{ComfyUI, Diffusers}

// pair is a low-rank pair on rows of a module.
type pair struct {
	a, b port.Param
	rank int
}

// pairs puts the parameters of a LoRA together, in their order.
func pairs(params []port.Param) ([]pair, error) {
	if len(params) == 0 || len(params)%2 != 0 {
		return nil, fmt.Errorf("%d tensors are no low-rank pairs", len(params))
	}
	var ps []pair
	for i := 0; i < len(params); i += 2 {
		a, b := params[i], params[i+1]
		if a.Part != "lora_A" || b.Part != "lora_B" || a.Module != b.Module || a.Rows != b.Rows {
			return nil, fmt.Errorf("%s and %s are no low-rank pair", a.Name(), b.Name())
		}
		ps = append(ps, pair{a: a, b: b, rank: a.Value.Rows()})
	}
	return ps, nil
}

// whole says whether the pair acts on all rows of its module.
func (p pair) whole() bool { return p.a.Rows.Lo == 0 && p.a.Rows.Hi == p.a.Out() }

// in returns the columns of A, the input's width.
func (p pair) in() int { return p.a.Value.Cols() }

// comfyui lists the tensors of the comfyui layout. Pairs on parts of one fused
// module become one pair on all of it, since that layout knows no parts: A one
// above the other, B block-diagonal, the rank their sum. The product is the same.
func (w *writer) comfyui(ps []pair) []safetensors.Out {
	groups := map[string][]pair{}
	var order []string
	for _, p := range ps {
		if groups[p.a.Module] == nil {
			order = append(order, p.a.Module)
		}
		groups[p.a.Module] = append(groups[p.a.Module], p)
	}
	var outs []safetensors.Out
	for _, module := range order {
		group := groups[module]
		slices.SortFunc(group, func(a, b pair) int { return cmp.Compare(a.a.Rows.Lo, b.a.Rows.Lo) })
		rank := 0
		for _, p := range group {
			rank += p.rank
		}
		outs = append(outs,
			w.out("diffusion_model."+module+".lora_A.weight", rank, group[0].in(), func(ctx context.Context, dst io.Writer) error {
				return w.stack(ctx, dst, group)
			}),
			w.out("diffusion_model."+module+".lora_B.weight", group[0].a.Out(), rank, func(ctx context.Context, dst io.Writer) error {
				return w.blockDiagonal(ctx, dst, group, rank)
			}))
	}
	return outs
}

// stack writes the A of several pairs one above the other.
func (w *writer) stack(ctx context.Context, dst io.Writer, group []pair) error {
	for _, p := range group {
		if err := w.rows(ctx, dst, p.a, 0, p.rank, 1); err != nil {
			return err
		}
	}
	return nil
}

// blockDiagonal writes the B of several pairs, sorted by their rows, each in
// the columns of its own A; rows that none acts on are zero.
func (w *writer) blockDiagonal(ctx context.Context, dst io.Writer, group []pair, rank int) error {
	if len(group) == 1 && group[0].whole() {
		return w.rows(ctx, dst, group[0].b, 0, group[0].b.Value.Rows(), w.scale)
	}
	row, col := 0, 0
	for _, p := range group {
		if err := w.zeroRows(dst, p.a.Rows.Lo-row, rank); err != nil {
			return err
		}
		if err := w.padded(ctx, dst, p, col, rank); err != nil {
			return err
		}
		row, col = p.a.Rows.Hi, col+p.rank
	}
	return w.zeroRows(dst, group[0].a.Out()-row, rank)
}

// padded writes the rows of a pair's B from column col on, zeros around them.
func (w *writer) padded(ctx context.Context, dst io.Writer, p pair, col, rank int) error {
	values, err := w.load(ctx, p.b)
	if err != nil {
		return err
	}
	line := make([]float32, rank)
	for i := range p.b.Value.Rows() {
		copy(line[col:], values[i*p.rank:(i+1)*p.rank])
		if err := w.cast(dst, p.b, line, w.scale); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) zeroRows(dst io.Writer, n, cols int) error {
	line := make([]float32, cols)
	for range n {
		if err := w.cast(dst, port.Param{}, line, 1); err != nil {
			return err
		}
	}
	return nil
}

// diffusers lists the tensors of the diffusers layout, which knows the parts of
// fused modules by their own names: a pair on all of one becomes a pair on each
// part, with the same A and that part's rows of B.
func (w *writer) diffusers(ps []pair) (outs []safetensors.Out, modules []ranked) {
	for _, p := range ps {
		parts := []port.Rows{p.a.Rows}
		if p.whole() {
			parts = p.a.Split
		}
		for _, part := range parts {
			lo, hi := part.Lo-p.a.Rows.Lo, part.Hi-p.a.Rows.Lo
			modules = append(modules, ranked{part.Name, p.rank})
			outs = append(outs,
				w.out("transformer."+part.Name+".lora_A.weight", p.rank, p.in(), func(ctx context.Context, dst io.Writer) error {
					return w.rows(ctx, dst, p.a, 0, p.rank, 1)
				}),
				w.out("transformer."+part.Name+".lora_B.weight", hi-lo, p.rank, func(ctx context.Context, dst io.Writer) error {
					return w.rows(ctx, dst, p.b, lo, hi, w.scale)
				}))
		}
	}
	return outs, modules
}

// ranked is a module of a file with the rank of its pair.
type ranked struct {
	name string
	rank int
}
