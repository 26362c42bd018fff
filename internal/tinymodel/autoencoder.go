package tinymodel

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"

	"longship/gpu/cpu"
	"longship/internal/rng"
	"longship/internal/vae"
)

// autoencoder writes the autoencoder into dir, where its config.json is. Its
// weights are drawn first, with neutral statistics; then the latents of the
// procedural pictures give the statistics, and it is written again.
func autoencoder(dir string, seed uint64) error {
	b, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		return err
	}
	cfg, err := vae.ParseConfig(b)
	if err != nil {
		return err
	}
	weights := autoencoderWeights(cfg, seed)
	path := filepath.Join(dir, "diffusion_pytorch_model.safetensors")
	if err := save(path, weights); err != nil {
		return err
	}
	mean, variance, err := measure(dir, seed)
	if err != nil {
		return err
	}
	for i := range weights {
		switch weights[i].name {
		case "bn.running_mean":
			weights[i].data = mean
		case "bn.running_var":
			weights[i].data = variance
		}
	}
	return save(path, weights)
}

func autoencoderWeights(cfg vae.Config, seed uint64) []weight {
	m := &maker{seed: seed, part: "autoencoder"}
	names, shapes := cfg.Tensors()
	for _, name := range names {
		shape := shapes[name]
		switch {
		case name == "bn.running_mean":
			m.constant(name, 0, shape[0])
		case name == "bn.running_var":
			m.constant(name, 1, shape[0])
		case strings.Contains(name, "norm") && strings.HasSuffix(name, ".weight"):
			m.constant(name, 1, shape[0])
		case strings.HasSuffix(name, ".bias"):
			m.normal(name, 0.1, shape...)
		default:
			fan := 1
			for _, d := range shape[1:] {
				fan *= d
			}
			m.normal(name, 1/math.Sqrt(float64(fan)), shape...)
		}
	}
	return m.out
}

const (
	pictures    = 24
	pictureSide = 128
)

// measure returns mean and variance of every channel of the latents of the
// procedural pictures.
func measure(dir string, seed uint64) (mean, variance []float32, err error) {
	files, err := vae.Open(dir)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, files.Close()) }()
	dev, err := cpu.New()
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	ctx := context.Background()
	enc, err := files.Encoder(ctx, dev, 0)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, enc.Close()) }()

	channels := files.Config.TokenChannels()
	sum, square, n := make([]float64, channels), make([]float64, channels), 0
	for i := range pictures {
		z, err := enc.Encode(ctx, picture(seed, i), pictureSide, pictureSide)
		if err != nil {
			return nil, nil, err
		}
		per := len(z) / channels
		n += per
		for c := range channels {
			for _, v := range z[c*per : (c+1)*per] {
				sum[c] += float64(v)
				square[c] += float64(v) * float64(v)
			}
		}
	}
	mean, variance = make([]float32, channels), make([]float32, channels)
	for c := range channels {
		m := sum[c] / float64(n)
		mean[c], variance[c] = float32(m), float32(square[c]/float64(n)-m*m)
	}
	return mean, variance, nil
}

// picture draws picture i, planar [3, side, side] in [-1, 1]: waves whose
// strength falls with their frequency, as it does in photographs, under a few
// flat rectangles with hard edges.
func picture(seed uint64, i int) []float32 {
	g := rng.New(seed, "tinymodel/picture", i)
	var at uint64
	next := func() float64 { at++; return g.Float64(at) }
	out := make([]float32, 3*pictureSide*pictureSide)
	plane := func(c int) []float32 { return out[c*pictureSide*pictureSide : (c+1)*pictureSide*pictureSide] }
	for range 24 {
		fx, fy := math.Round(16*next()*next()), math.Round(16*next()*next())
		strength := 0.8 / (1 + math.Hypot(fx, fy))
		phase := 2 * math.Pi * next()
		tint := [3]float64{next() + 0.3, next() + 0.3, next() + 0.3}
		for y := range pictureSide {
			for x := range pictureSide {
				v := strength * math.Cos(2*math.Pi*(fx*float64(x)+fy*float64(y))/pictureSide+phase)
				for c := range 3 {
					plane(c)[y*pictureSide+x] += float32(v * tint[c])
				}
			}
		}
	}
	for range 4 {
		x0, y0 := int(next()*pictureSide), int(next()*pictureSide)
		w, h := 4+int(next()*48), 4+int(next()*48)
		for c := range 3 {
			level := float32(2*next() - 1)
			for y := y0; y < min(y0+h, pictureSide); y++ {
				for x := x0; x < min(x0+w, pictureSide); x++ {
					plane(c)[y*pictureSide+x] = level
				}
			}
		}
	}
	for k, v := range out {
		out[k] = max(-1, min(1, v))
	}
	return out
}
