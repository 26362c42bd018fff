package imageio

import "image"

// Chroma planes of JPEG and WebP files are usually stored at half the size.
// libjpeg and libwebp, and so Pillow, bring them back with a triangle filter:
// an output sample is 3/4 of the nearer and 1/4 of the farther stored one, in
// each halved direction. Go's own conversion takes the nearest, which is up to
// 37/255 off.

// yccKind is how a format rounds the filter and what its YCbCr means.
type yccKind struct {
	even, odd int32 // what is added before the shift, at even and odd columns
	toRGB     func(dst []uint8, y, cb, cr []uint8)
}

var (
	jpegYCC = yccKind{8, 7, fullRangeToRGB} // libjpeg alternates to avoid a bias
	webpYCC = yccKind{8, 8, studioRangeToRGB}
)

// decodeYCC converts decoded YCbCr planes to RGB.
func decodeYCC(m *image.YCbCr, kind yccKind) *Image {
	b := m.Bounds()
	out := New(b.Dx(), b.Dy())
	cw, ch := chromaSize(m.SubsampleRatio, out.W, out.H)
	parallelRows(out.H, 3*out.W, func(y0, y1 int) {
		cb, cr, sums := make([]uint8, out.W+1), make([]uint8, out.W+1), make([]int32, cw)
		for y := y0; y < y1; y++ {
			luma := m.Y[(y)*m.YStride:][:out.W]
			upsampleRow(cb, m.Cb, m.CStride, cw, ch, y, m.SubsampleRatio, kind, sums)
			upsampleRow(cr, m.Cr, m.CStride, cw, ch, y, m.SubsampleRatio, kind, sums)
			kind.toRGB(out.row(y), luma, cb, cr)
		}
	})
	return out
}

// chromaSize is the size of the chroma planes of a w x h image.
func chromaSize(r image.YCbCrSubsampleRatio, w, h int) (cw, ch int) {
	sx, sy := chromaStep(r)
	return (w + sx - 1) / sx, (h + sy - 1) / sy
}

// chromaStep is how many pixels share one chroma sample, across and down.
func chromaStep(r image.YCbCrSubsampleRatio) (sx, sy int) {
	switch r {
	case image.YCbCrSubsampleRatio422:
		return 2, 1
	case image.YCbCrSubsampleRatio420:
		return 2, 2
	case image.YCbCrSubsampleRatio440:
		return 1, 2
	case image.YCbCrSubsampleRatio411:
		return 4, 1
	case image.YCbCrSubsampleRatio410:
		return 4, 2
	}
	return 1, 1
}

// upsampleRow writes the chroma of pixel row y to dst, from a plane of cw x ch
// samples. sums is scratch of cw. The rarer ratios repeat samples, as libjpeg does;
// so does it with planes of one or two columns.
func upsampleRow(dst, plane []uint8, stride, cw, ch, y int, ratio image.YCbCrSubsampleRatio, kind yccKind, sums []int32) {
	sx, sy := chromaStep(ratio)
	near := plane[y/sy*stride:][:cw]
	switch {
	case sx == 1 && sy == 1:
		copy(dst, near)
	case sx == 4 || sx == 2 && cw <= 2 && kind.odd != kind.even:
		for x := range dst {
			dst[x] = near[min(x/sx, cw-1)]
		}
	default:
		weight := int32(1) // of the vertical filter in sums
		if sy == 2 {
			weight = 4
			far := plane[farRow(y, ch)*stride:][:cw]
			for i, v := range near {
				sums[i] = 3*int32(v) + int32(far[i])
			}
		} else {
			for i, v := range near {
				sums[i] = int32(v)
			}
		}
		if sx == 1 { // the vertical filter alone, rounding as its rows alternate
			for i, v := range sums {
				dst[i] = uint8((v + 1 + int32(y&1)) >> 2)
			}
			return
		}
		even, odd, shift := kind.even, kind.odd, 4
		if weight == 1 {
			even, odd, shift = 1, 2, 2
		}
		left := sums[0]
		for i, v := range sums {
			right := sums[min(i+1, cw-1)]
			dst[2*i] = uint8((3*v + left + even) >> shift)
			if 2*i+1 < len(dst) {
				dst[2*i+1] = uint8((3*v + right + odd) >> shift)
			}
			left = v
		}
	}
}

// farRow is the chroma row that is second nearest to pixel row y.
func farRow(y, ch int) int {
	if y&1 == 0 {
		return max(y/2-1, 0)
	}
	return min(y/2+1, ch-1)
}

// fullRangeToRGB is JFIF's YCbCr (BT.601, 0..255), in 16-bit fixed point:
//
//	R = Y + 1.402 (Cr-128)
//	G = Y - 0.344136 (Cb-128) - 0.714136 (Cr-128)
//	B = Y + 1.772 (Cb-128)
func fullRangeToRGB(dst, y, cb, cr []uint8) {
	const half = 1 << 15
	for i, v := range y {
		l, b, r := int32(v)<<16+half, int32(cb[i])-128, int32(cr[i])-128
		d := dst[3*i : 3*i+3 : 3*i+3]
		d[0] = clamp8((l + 91881*r) >> 16)
		d[1] = clamp8((l - 22554*b - 46802*r) >> 16)
		d[2] = clamp8((l + 116130*b) >> 16)
	}
}

// studioRangeToRGB is VP8's YCbCr (BT.601, Y in 16..235, chroma in 16..240), in
// the fixed point that libwebp uses: products keep 6 fractional bits.
//
//	R = 1.164 (Y-16) + 1.596 (Cr-128)
//	G = 1.164 (Y-16) - 0.391 (Cb-128) - 0.813 (Cr-128)
//	B = 1.164 (Y-16) + 2.018 (Cb-128)
func studioRangeToRGB(dst, y, cb, cr []uint8) {
	for i, v := range y {
		l, b, r := int32(v)*19077>>8, int32(cb[i]), int32(cr[i])
		d := dst[3*i : 3*i+3 : 3*i+3]
		d[0] = clamp8((l + r*26149>>8 - 14234) >> 6)
		d[1] = clamp8((l - b*6419>>8 - r*13320>>8 + 8708) >> 6)
		d[2] = clamp8((l + b*33050>>8 - 17685) >> 6)
	}
}

func clamp8(v int32) uint8 { return uint8(min(max(v, 0), 255)) }
