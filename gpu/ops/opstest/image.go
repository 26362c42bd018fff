package opstest

import (
	"math"

	"longship/gpu"
	"longship/gpu/ops"
	"longship/gpu/tensor"
)

func imageCases() []Case {
	var cases []Case
	for _, s := range []conv{
		{batch: 1, in: 1, out: 1, h: 3, w: 3, k: 3, stride: 1, pad: 1, end: 1},
		{batch: 2, in: 3, out: 4, h: 7, w: 9, k: 3, stride: 1, pad: 1, end: 1},
		{batch: 2, in: 3, out: 5, h: 8, w: 6, k: 3, stride: 2, pad: 0, end: 1},
		{batch: 1, in: 6, out: 4, h: 5, w: 5, k: 1, stride: 1},
		{batch: 1, in: 32, out: 8, h: 40, w: 31, k: 3, stride: 1, pad: 1, end: 1},
	} {
		cases = append(cases, s.asCase(true), s.asCase(false))
	}
	for _, silu := range []bool{false, true} {
		cases = append(cases, groupNormCase(2, 6, 3, 5, 2, silu), groupNormCase(1, 8, 1, 1, 8, silu), groupNormCase(1, 8, 4, 4, 1, silu))
	}
	const b, c, h, w = 2, 3, 4, 5
	images := x("x", b, c, 2*h, 2*w)
	fold := func(v []float64) []float64 {
		return filled(len(v), func(i int) float64 {
			n, ch, r, col := i/(4*c*h*w), i/(h*w)%(4*c), i/w%h, i%w
			return v[((n*c+ch/4)*2*h+2*r+ch/2%2)*2*w+2*col+ch%2]
		})
	}
	unfold := func(v []float64) []float64 {
		return filled(len(v), func(i int) float64 {
			n, ch, r, col := i/(4*c*h*w), i/(4*h*w)%c, i/(2*w)%(2*h), i%(2*w)
			return v[((n*4*c+4*ch+2*(r%2)+col%2)*h+r/2)*w+col/2]
		})
	}
	stats := []Arg{f32("mean", Normal(1), c), f32("std", Uniform(0.5, 2), c)}
	channel := func(inverse bool) Case {
		return Case{
			Name: named("channel_norm/inverse=%t", inverse),
			In:   append([]Arg{images}, stats...),
			Out:  []Arg{out("y", images.Shape...).over("x")},
			Op: func(t Tensors) gpu.Kernel {
				return ops.ChannelNorm{Y: t["y"], X: t["x"], Mean: t["mean"], Std: t["std"], Inverse: inverse}
			},
			Want: func(v Values) Values {
				return Values{"y": filled(len(v["x"]), func(i int) float64 {
					m, s := v["mean"][i/(4*h*w)%c], v["std"][i/(4*h*w)%c]
					if inverse {
						return v["x"][i]*s + m
					}
					return (v["x"][i] - m) / s
				})}
			},
		}
	}
	cases = append(cases, channel(false), channel(true),
		Case{Name: "patchify/fold", In: []Arg{images}, Out: []Arg{out("y", b, 4*c, h, w)},
			Op:   func(t Tensors) gpu.Kernel { return ops.Patchify{Y: t["y"], X: t["x"]} },
			Want: func(v Values) Values { return Values{"y": fold(v["x"])} }},
		Case{Name: "patchify/unfold", In: []Arg{x("x", b, 4*c, h, w)}, Out: []Arg{out("y", images.Shape...)},
			Op:   func(t Tensors) gpu.Kernel { return ops.Patchify{Y: t["y"], X: t["x"], Inverse: true} },
			Want: func(v Values) Values { return Values{"y": unfold(v["x"])} }},
		Case{Name: "upsample2x/small", In: []Arg{x("x", b, c, h, w)}, Out: []Arg{out("y", images.Shape...)},
			Op: func(t Tensors) gpu.Kernel { return ops.Upsample2x{Y: t["y"], X: t["x"]} },
			Want: func(v Values) Values {
				return Values{"y": filled(4*b*c*h*w, func(i int) float64 {
					plane, r, col := i/(4*h*w), i/(2*w)%(2*h), i%(2*w)
					return v["x"][(plane*h+r/2)*w+col/2]
				})}
			}})
	speed := conv{batch: 1, in: 128, out: 128, h: 48, w: 48, k: 3, stride: 1, pad: 1, end: 1}.asCase(true)
	norm := groupNormCase(1, 128, 64, 64, 32, true)
	for _, c := range []Case{speed, norm} {
		c.Name, c.Want = "speed/"+c.Name, nil
		cases = append(cases, c)
	}
	return cases
}

// conv is the geometry of a convolution.
type conv struct{ batch, in, out, h, w, k, stride, pad, end int }

func (s conv) size(n int) int { return (n+s.pad+s.end-s.k)/s.stride + 1 }

func (s conv) asCase(bias bool) Case {
	oh, ow := s.size(s.h), s.size(s.w)
	c := Case{
		Name: named("conv2d/%dx%dx%dx%d to %d k%d stride %d pad %d,%d bias=%t", s.batch, s.in, s.h, s.w, s.out, s.k, s.stride, s.pad, s.end, bias),
		In:   []Arg{x("x", s.batch, s.in, s.h, s.w), f32("w", Normal(0.3), s.out, s.in, s.k, s.k)},
		Out:  []Arg{out("y", s.batch, s.out, oh, ow)},
		Op: func(t Tensors) gpu.Kernel {
			return ops.Conv2D{Y: t["y"], X: t["x"], W: t["w"], Bias: t["bias"], Stride: s.stride, Pad: s.pad, PadEnd: s.end}
		},
		Want: func(v Values) Values {
			return Values{"y": filled(s.batch*s.out*oh*ow, func(i int) float64 {
				b, o, r, col := i/(s.out*oh*ow), i/(oh*ow)%s.out, i/ow%oh, i%ow
				var sum float64
				for ch := range s.in {
					for p := range s.k {
						for q := range s.k {
							y, x := r*s.stride+p-s.pad, col*s.stride+q-s.pad
							if y >= 0 && y < s.h && x >= 0 && x < s.w {
								sum += v["w"][((o*s.in+ch)*s.k+p)*s.k+q] * v["x"][((b*s.in+ch)*s.h+y)*s.w+x]
							}
						}
					}
				}
				if bias {
					sum += v["bias"][o]
				}
				return sum
			})}
		},
	}
	if bias {
		c.In = append(c.In, Arg{Name: "bias", Shape: []int{s.out}, DType: tensor.BF16, Fill: Normal(1)})
	}
	return c
}

func groupNormCase(b, c, h, w, groups int, act bool) Case {
	return Case{
		Name: named("group_norm/%dx%dx%dx%d groups %d silu=%t", b, c, h, w, groups, act),
		In:   []Arg{x("x", b, c, h, w), f32("w", Uniform(0.5, 1.5), c), {Name: "b", Shape: []int{c}, DType: tensor.BF16, Fill: Normal(1)}},
		Out:  []Arg{out("y", b, c, h, w).over("x")},
		Op: func(t Tensors) gpu.Kernel {
			return ops.GroupNorm{Y: t["y"], X: t["x"], W: t["w"], B: t["b"], Groups: groups, Eps: eps, SiLU: act}
		},
		Want: func(v Values) Values {
			y := make([]float64, len(v["x"]))
			per := c / groups * h * w
			for at := 0; at < len(y); at += per {
				var mean, sq float64
				for _, x := range v["x"][at : at+per] {
					mean += x / float64(per)
				}
				for _, x := range v["x"][at : at+per] {
					sq += (x - mean) * (x - mean) / float64(per)
				}
				for i := at; i < at+per; i++ {
					ch := i / (h * w) % c
					y[i] = v["w"][ch]*(v["x"][i]-mean)/math.Sqrt(sq+eps) + v["b"][ch]
					if act {
						y[i] = silu(y[i])
					}
				}
			}
			return Values{"y": y}
		},
	}
}
