package flux2

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Tensor is a weight by its canonical name, which is that of BFL's single files.
type Tensor struct {
	Name  string
	Shape []int // [out, in] of a Linear, [HeadDim] of a norm
}

// Norm says whether the weight scales a norm. Norms are never quantised.
func (t Tensor) Norm() bool { return len(t.Shape) == 1 }

// Params returns the number of elements.
func (t Tensor) Params() int64 {
	n := int64(1)
	for _, d := range t.Shape {
		n *= int64(d)
	}
	return n
}

// Unit is a group of weights that is stored and moved in one piece: one stream
// of a double block, a single block, or all that lies outside the blocks.
type Unit struct {
	Name    string // "double_blocks.0.img", "double_blocks.0.txt", "single_blocks.0", "outer"
	Block   int    // the block it belongs to, double blocks first; -1 for outer
	Tensors []Tensor
}

// Params returns the number of elements of all weights.
func (u Unit) Params() int64 {
	var n int64
	for _, t := range u.Tensors {
		n += t.Params()
	}
	return n
}

// Outer returns the weights outside the blocks. There is no bias in the model.
func (c Config) Outer() Unit {
	d := c.Width()
	ts := []Tensor{
		{"img_in.weight", []int{d, c.InChannels}},
		{"txt_in.weight", []int{d, c.TextDim}},
		{"time_in.in_layer.weight", []int{d, c.TimeChannels}},
		{"time_in.out_layer.weight", []int{d, d}},
	}
	if c.Guidance {
		ts = append(ts,
			Tensor{"guidance_in.in_layer.weight", []int{d, c.TimeChannels}},
			Tensor{"guidance_in.out_layer.weight", []int{d, d}})
	}
	return Unit{Name: "outer", Block: -1, Tensors: append(ts,
		Tensor{"double_stream_modulation_img.lin.weight", []int{6 * d, d}},
		Tensor{"double_stream_modulation_txt.lin.weight", []int{6 * d, d}},
		Tensor{"single_stream_modulation.lin.weight", []int{3 * d, d}},
		Tensor{"final_layer.adaLN_modulation.1.weight", []int{2 * d, d}}, // rows [shift; scale]
		Tensor{"final_layer.linear.weight", []int{c.OutChannels, d}},
	)}
}

// Units returns the weights inside the blocks as units, in forward order; the
// two streams of a double block are neighbours.
func (c Config) Units() []Unit {
	var units []Unit
	d, inner := c.Width(), c.Inner()
	for i := range c.DoubleBlocks {
		for _, stream := range streams {
			p := doublePrefix(i, stream)
			units = append(units, Unit{Name: p, Block: i, Tensors: []Tensor{
				{p + "_attn.norm.query_norm.scale", []int{c.HeadDim}},
				{p + "_attn.norm.key_norm.scale", []int{c.HeadDim}},
				{p + "_attn.qkv.weight", []int{3 * d, d}},
				{p + "_attn.proj.weight", []int{d, d}},
				{p + "_mlp.0.weight", []int{2 * inner, d}},
				{p + "_mlp.2.weight", []int{d, inner}},
			}})
		}
	}
	for i := range c.SingleBlocks {
		p := singlePrefix(i)
		units = append(units, Unit{Name: p, Block: c.DoubleBlocks + i, Tensors: []Tensor{
			{p + ".norm.query_norm.scale", []int{c.HeadDim}},
			{p + ".norm.key_norm.scale", []int{c.HeadDim}},
			{p + ".linear1.weight", []int{3*d + 2*inner, d}},
			{p + ".linear2.weight", []int{d, d + inner}},
		}})
	}
	return units
}

// streams are the two streams of a double block as its weights name them.
var streams = [...]string{"img", "txt"}

func doublePrefix(i int, stream string) string { return fmt.Sprintf("double_blocks.%d.%s", i, stream) }
func singlePrefix(i int) string                { return fmt.Sprintf("single_blocks.%d", i) }

// Tensors returns the shape of every weight by canonical name.
func (c Config) Tensors() map[string][]int {
	shapes := map[string][]int{}
	for _, u := range append(c.Units(), c.Outer()) {
		for _, t := range u.Tensors {
			shapes[t.Name] = t.Shape
		}
	}
	return shapes
}

// Params returns the number of weights of the whole model.
func (c Config) Params() int64 {
	n := c.Outer().Params()
	for _, u := range c.Units() {
		n += u.Params()
	}
	return n
}

// Infer works the config out from the shapes of a single file's weights, by
// canonical name. What shapes do not tell takes the default; the split of the
// RoPE axes is known for the default head width alone.
func Infer(shapes map[string][]int) (Config, error) {
	c := Default()
	dim := func(name string, axis int) int {
		if s := shapes[name]; len(s) > axis {
			return s[axis]
		}
		return 0
	}
	d := dim("img_in.weight", 0)
	c.HeadDim = dim("double_blocks.0.img_attn.norm.query_norm.scale", 0)
	if d == 0 || c.HeadDim == 0 || d%c.HeadDim != 0 {
		return Config{}, errors.New("not a FLUX.2 transformer: img_in.weight and double_blocks.0.img_attn.norm.query_norm.scale do not give a width and a head width")
	}
	if c.HeadDim != Default().HeadDim {
		return Config{}, fmt.Errorf("heads of %d dimensions: how RoPE splits them into axes cannot be read from the weights; put the model's config.json beside the file", c.HeadDim)
	}
	c.Heads = d / c.HeadDim
	c.InChannels = dim("img_in.weight", 1)
	c.OutChannels = dim("final_layer.linear.weight", 0)
	c.TextDim = dim("txt_in.weight", 1)
	c.TimeChannels = dim("time_in.in_layer.weight", 1)
	c.MLPRatio = float64(dim("double_blocks.0.img_mlp.2.weight", 1)) / float64(d)
	_, c.Guidance = shapes["guidance_in.in_layer.weight"]
	c.DoubleBlocks, c.SingleBlocks = 0, 0
	for name := range shapes {
		if kind, i, ok := blockOf(name); ok {
			switch kind {
			case "double_blocks":
				c.DoubleBlocks = max(c.DoubleBlocks, i+1)
			case "single_blocks":
				c.SingleBlocks = max(c.SingleBlocks, i+1)
			}
		}
	}
	if err := c.check(); err != nil {
		return Config{}, fmt.Errorf("config worked out from the weights: %w", err)
	}
	return c, nil
}

// blockOf splits "single_blocks.12.linear1.weight" into its kind and number.
func blockOf(name string) (kind string, i int, ok bool) {
	kind, rest, _ := strings.Cut(name, ".")
	num, _, _ := strings.Cut(rest, ".")
	i, err := strconv.Atoi(num)
	return kind, i, err == nil && i >= 0 && i < maxBlocks
}
