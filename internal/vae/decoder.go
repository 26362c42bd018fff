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

// Decoder turns normalised latents into pixels.
type Decoder struct{ coder }

// Decoder loads the decoding half.
func (f *Files) Decoder(ctx context.Context, dev gpu.Device, tile int) (*Decoder, error) {
	d := &Decoder{coder{cfg: f.Config, dev: dev, tile: tile}}
	if err := d.load(ctx, f, decodes); err != nil {
		return nil, errors.Join(fmt.Errorf("load autoencoder: %w", err), d.Close())
	}
	return d, nil
}

func decodes(name string) bool {
	return strings.HasPrefix(name, "decoder.") || strings.HasPrefix(name, "post_quant_conv.") || name == runningMean || name == runningVar
}

// DecoderBytes returns what a Decoder takes of a device for images of these
// sizes (height, width).
func (f *Files) DecoderBytes(tile int, sizes ...[2]int) int64 {
	n := net{groups: f.Config.Groups, weights: f.layout(decodes).tensors}
	var work int64
	for _, s := range sizes {
		work = max(work, workspace(n, decoding(f.Config, tile, s[0], s[1])))
	}
	return f.layout(decodes).Peak() + work
}

// decoding is the dry run of one image's decoding.
func decoding(cfg Config, tile, h, w int) func(n *net) {
	plan, scale := Plan(tile, h, w), cfg.Scale()
	return func(n *net) {
		func() {
			defer n.Scope()()
			stats := tensor.New(nil, 0, tensor.F32, cfg.TokenChannels())
			n.denormalise(n.New(1, cfg.TokenChannels(), h/cfg.Stride(), w/cfg.Stride()), stats, stats)
		}()
		th, tw := plan.largest(h, w)
		n.pixels(cfg, n.New(1, cfg.LatentChannels, th/scale, tw/scale))
	}
}

// Decode returns the pixels [3, 16h, 16w] of a normalised latent [4·latent, h, w],
// in about [-1, 1]; they are not clamped.
func (d *Decoder) Decode(ctx context.Context, latent []float32, h, w int) ([]float32, error) {
	if len(latent) != d.cfg.TokenChannels()*h*w {
		return nil, fmt.Errorf("autoencoder: %d values are no latent of %d channels on %dx%d", len(latent), d.cfg.TokenChannels(), w, h)
	}
	n, err := d.begin(decoding(d.cfg, d.tile, h*d.cfg.Stride(), w*d.cfg.Stride()))
	if err != nil {
		return nil, err
	}
	z, err := func() (plane, error) {
		defer n.Scope()()
		x, err := d.upload(n, plane{data: latent, c: d.cfg.TokenChannels(), h: h, w: w})
		if err != nil {
			return plane{}, err
		}
		return d.download(n.denormalise(x, d.mean, d.std))
	}()
	if err != nil {
		return nil, err
	}
	out, err := d.decode(ctx, n, z)
	return out.data, err
}

// denormalise is the inverse of normalise.
func (n *net) denormalise(x, mean, std tensor.Tensor) tensor.Tensor {
	z := n.New(1, x.Shape[1]/(Patch*Patch), x.Shape[2]*Patch, x.Shape[3]*Patch)
	n.Run(
		ops.ChannelNorm{Y: x, X: x, Mean: mean, Std: std, Inverse: true},
		ops.Patchify{Y: z, X: x, Inverse: true},
	)
	return n.see("denormalised", z)
}

// decode maps a latent as the model has it, whole or in tiles.
func (d *Decoder) decode(ctx context.Context, n *net, z plane) (plane, error) {
	pixels := func(p plane) (plane, error) {
		defer n.Scope()()
		if err := ctx.Err(); err != nil {
			return plane{}, err
		}
		x, err := d.upload(n, p)
		if err != nil {
			return plane{}, err
		}
		return d.download(n.pixels(d.cfg, x))
	}
	scale := d.cfg.Scale()
	if Plan(d.tile, z.h*scale, z.w*scale).Whole() {
		return pixels(z)
	}
	return tiled(z, d.tile/scale, d.tile, d.cfg.OutChannels, z.h*scale, z.w*scale, pixels)
}
