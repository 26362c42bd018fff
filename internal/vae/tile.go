package vae

import "fmt"

// Tiling cuts what is too large for the device into overlapping squares that
// are run one by one and blended linearly where they overlap, rows first.
// Scheme and constants are diffusers': tiles of config.sample_size pixels that
// overlap by a quarter.

// overlap is the share of a tile that its neighbour covers too.
const overlap = 0.25

// TileStep is what a tile's side must be a multiple of: a quarter of it must be
// whole in pixels and in latent positions.
const TileStep = 32

// TilePlan says how an image is cut: whole, or in tiles of that many pixels a side.
type TilePlan int

// Plan returns how an image of h x w is encoded where larger ones than tile
// pixels a side are cut; tile 0 cuts none.
func Plan(tile, h, w int) TilePlan {
	if tile == 0 || (h <= tile && w <= tile) {
		return 0
	}
	return TilePlan(tile)
}

// Whole says whether the image is not cut.
func (p TilePlan) Whole() bool { return p == 0 }

// String describes the plan; it is part of a latent's key.
func (p TilePlan) String() string {
	if p.Whole() {
		return "whole"
	}
	return fmt.Sprintf("tiles of %d px, overlap %g, linear", int(p), overlap)
}

// largest returns the size of the largest tile.
func (p TilePlan) largest(h, w int) (int, int) {
	if p.Whole() {
		return h, w
	}
	return min(h, int(p)), min(w, int(p))
}

// plane is a [C, H, W] array on the host.
type plane struct {
	data    []float32
	c, h, w int
}

func newPlane(c, h, w int) plane { return plane{make([]float32, c*h*w), c, h, w} }

// row returns row y of channel c.
func (p plane) row(c, y int) []float32 {
	return p.data[(c*p.h+y)*p.w : (c*p.h+y+1)*p.w]
}

// crop returns a copy of the rectangle at (y, x), at most h by w, cut at the edges.
func (p plane) crop(y, x, h, w int) plane {
	h, w = min(h, p.h-y), min(w, p.w-x)
	out := newPlane(p.c, h, w)
	for c := range p.c {
		for r := range h {
			copy(out.row(c, r), p.row(c, y+r)[x:x+w])
		}
	}
	return out
}

// paste copies the rectangle h by w at the corner of src to (y, x).
func (p plane) paste(src plane, y, x, h, w int) {
	for c := range p.c {
		for r := range h {
			copy(p.row(c, y+r)[x:x+w], src.row(c, r)[:w])
		}
	}
}

// blendDown fades the last rows of above into the first rows of p.
func (p plane) blendDown(above plane, extent int) {
	extent = min(extent, above.h, p.h)
	for c := range p.c {
		for y := range extent {
			k := float32(float64(y) / float64(extent))
			from, to := above.row(c, above.h-extent+y), p.row(c, y)
			for x := range min(p.w, above.w) {
				to[x] = from[x]*(1-k) + to[x]*k
			}
		}
	}
}

// blendRight fades the last columns of left into the first columns of p.
func (p plane) blendRight(left plane, extent int) {
	extent = min(extent, left.w, p.w)
	for c := range p.c {
		for y := range p.h {
			from, to := left.row(c, y)[left.w-extent:], p.row(c, y)
			for x := range extent {
				k := float32(float64(x) / float64(extent))
				to[x] = from[x]*(1-k) + to[x]*k
			}
		}
	}
}

// tiled runs one step of the model over tiles of in. side is a tile's side in
// in's positions, outSide in the result's; run maps a tile. The result is
// [channels, outH, outW].
func tiled(in plane, side, outSide, channels, outH, outW int, run func(plane) (plane, error)) (plane, error) {
	stride := int(float64(side) * (1 - overlap))
	extent := int(float64(outSide) * overlap)
	limit := outSide - extent
	out := newPlane(channels, outH, outW)
	var above []plane
	for i, y := 0, 0; y < in.h; i, y = i+1, y+stride {
		var row []plane
		for j, x := 0, 0; x < in.w; j, x = j+1, x+stride {
			t, err := run(in.crop(y, x, side, side))
			if err != nil {
				return plane{}, err
			}
			if i > 0 {
				t.blendDown(above[j], extent)
			}
			if j > 0 {
				t.blendRight(row[j-1], extent)
			}
			row = append(row, t)
			if oy, ox := i*limit, j*limit; oy < outH && ox < outW {
				out.paste(t, oy, ox, min(limit, t.h, outH-oy), min(limit, t.w, outW-ox))
			}
		}
		above = row
	}
	return out, nil
}
