package vae

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"longship/gpu"
	"longship/gpu/ops"
	"longship/gpu/tensor"
)

// Encoder turns pixels into normalised latents.
type Encoder struct{ coder }

// Encoder loads the encoding half onto a device, in float32 whatever the files
// hold: the model overflows in half precision. Images of more than tile pixels
// a side are encoded in tiles; 0 encodes all of them whole.
func (f *Files) Encoder(ctx context.Context, dev gpu.Device, tile int) (*Encoder, error) {
	e := &Encoder{coder{cfg: f.Config, dev: dev, tile: tile}}
	if err := e.load(ctx, f, encodes); err != nil {
		return nil, errors.Join(fmt.Errorf("load autoencoder: %w", err), e.Close())
	}
	return e, nil
}

func encodes(name string) bool {
	return strings.HasPrefix(name, "encoder.") || strings.HasPrefix(name, "quant_conv.") || name == runningMean || name == runningVar
}

// EncoderBytes returns what an Encoder takes of a device for images of these
// sizes (height, width).
func (f *Files) EncoderBytes(tile int, sizes ...[2]int) int64 {
	n := net{groups: f.Config.Groups, weights: f.layout(encodes).tensors}
	var work int64
	for _, s := range sizes {
		work = max(work, workspace(n, encoding(f.Config, tile, s[0], s[1])))
	}
	return f.layout(encodes).Peak() + work
}

// encoding is the dry run of one image's encoding.
func encoding(cfg Config, tile, h, w int) func(n *net) {
	plan := Plan(tile, h, w)
	return func(n *net) {
		func() {
			defer n.Scope()()
			th, tw := plan.largest(h, w)
			n.latent(cfg, n.New(1, cfg.InChannels, th, tw))
		}()
		z := n.New(1, cfg.LatentChannels, h/cfg.Scale(), w/cfg.Scale())
		stats := tensor.New(nil, 0, tensor.F32, cfg.TokenChannels())
		n.normalise(z, stats, stats)
	}
}

// Encode returns the normalised latent [4·latent, h/16, w/16] of pixels
// [3, h, w] in [-1, 1]: the mode of the distribution, 2 x 2 positions folded
// into channels, less the mean and by the deviation of the file's statistics.
// The sides must be multiples of Config.Stride.
func (e *Encoder) Encode(ctx context.Context, pixels []float32, h, w int) ([]float32, error) {
	if s := e.cfg.Stride(); h%s != 0 || w%s != 0 || len(pixels) != e.cfg.InChannels*h*w {
		return nil, fmt.Errorf("autoencoder: %d values are no image of %dx%d with sides that are multiples of %d", len(pixels), w, h, s)
	}
	n, err := e.begin(encoding(e.cfg, e.tile, h, w))
	if err != nil {
		return nil, err
	}
	in := plane{data: pixels, c: e.cfg.InChannels, h: h, w: w}
	mean := func(p plane) (plane, error) {
		defer n.Scope()()
		if err := ctx.Err(); err != nil {
			return plane{}, err
		}
		x, err := e.upload(n, p)
		if err != nil {
			return plane{}, err
		}
		return e.download(n.latent(e.cfg, x))
	}
	var z plane
	if scale := e.cfg.Scale(); Plan(e.tile, h, w).Whole() {
		z, err = mean(in)
	} else {
		z, err = tiled(in, e.tile, e.tile/scale, e.cfg.LatentChannels, h/scale, w/scale, mean)
	}
	if err != nil {
		return nil, err
	}
	x, err := e.upload(n, z)
	if err != nil {
		return nil, err
	}
	out, err := e.download(n.normalise(x, e.mean, e.std))
	return out.data, err
}

// latent returns the mean of the moments.
func (n *net) latent(cfg Config, pixels tensor.Tensor) tensor.Tensor {
	m := n.moments(cfg, pixels)
	h, w := m.Shape[2], m.Shape[3]
	return rows(m).RowRange(0, cfg.LatentChannels).View(1, cfg.LatentChannels, h, w)
}

// normalise folds a latent [1, C, 2h, 2w] and normalises it.
func (n *net) normalise(z, mean, std tensor.Tensor) tensor.Tensor {
	y := n.New(1, Patch*Patch*z.Shape[1], z.Shape[2]/Patch, z.Shape[3]/Patch)
	n.Run(ops.Patchify{Y: y, X: z})
	n.see("patchified", y)
	n.Run(ops.ChannelNorm{Y: y, X: y, Mean: mean, Std: std})
	return n.see("normalised", y)
}
