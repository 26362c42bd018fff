package imageio

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"image"
	"image/color"
	"math"
	"testing"
)

// matrix rows are X, Y, Z under D50 of a space's red, green and blue.
type primaries [3][3]float64

var (
	// displayP3 and sRGB adapted to D50 by Bradford's transform, as ICC profiles have them.
	displayP3 = primaries{{0.51512, 0.29198, 0.15710}, {0.24120, 0.69225, 0.06657}, {-0.00105, 0.04189, 0.78407}}
	sRGB      = primaries{{0.43607, 0.38515, 0.14307}, {0.22249, 0.71687, 0.06061}, {0.01392, 0.09708, 0.71410}}
)

// profile builds a version 2 display profile with one gamma.
func profile(p primaries, gamma float64) []byte {
	fixed := func(v float64) []byte {
		return binary.BigEndian.AppendUint32(nil, uint32(int32(math.Round(v*65536))))
	}
	xyz := func(v [3]float64) []byte {
		b := []byte("XYZ \x00\x00\x00\x00")
		for _, c := range v {
			b = append(b, fixed(c)...)
		}
		return b
	}
	curve := binary.BigEndian.AppendUint16([]byte("curv\x00\x00\x00\x00\x00\x00\x00\x01"), uint16(math.Round(gamma*256)))
	curve = append(curve, 0, 0)
	column := func(k int) [3]float64 { return [3]float64{p[0][k], p[1][k], p[2][k]} }
	d50 := [3]float64{0.9642, 1, 0.82491}
	tags := []struct {
		name string
		data []byte
	}{
		{"wtpt", xyz(d50)}, {"rXYZ", xyz(column(0))}, {"gXYZ", xyz(column(1))}, {"bXYZ", xyz(column(2))},
		{"rTRC", curve}, {"gTRC", curve}, {"bTRC", curve},
	}
	head := make([]byte, 128)
	copy(head[8:], "\x02\x40\x00\x00mntrRGB XYZ ")
	copy(head[36:], "acsp")
	copy(head[68:], xyz(d50)[8:])
	table := binary.BigEndian.AppendUint32(nil, uint32(len(tags)))
	var data []byte
	for _, t := range tags {
		table = append(table, t.name...)
		table = binary.BigEndian.AppendUint32(table, uint32(128+4+12*len(tags)+len(data)))
		table = binary.BigEndian.AppendUint32(table, uint32(len(t.data)))
		data = append(data, t.data...)
	}
	b := append(append(head, table...), data...)
	binary.BigEndian.PutUint32(b, uint32(len(b)))
	return b
}

// withChunk puts a chunk behind a PNG's header.
func withChunk(file, chunk []byte) []byte {
	const head = 8 + 25
	return append(append(bytes.Clone(file[:head]), pngChunk(chunk)...), file[head:]...)
}

func iccp(p []byte) []byte {
	var z bytes.Buffer
	w := zlib.NewWriter(&z)
	w.Write(p)
	w.Close()
	return append([]byte("iCCPtest\x00\x00"), z.Bytes()...)
}

// toSRGB is the conversion by its formula.
func (p primaries) toSRGB(c color.NRGBA, gamma float64) [3]uint8 {
	linear := [3]float64{}
	for i, v := range [3]uint8{c.R, c.G, c.B} {
		linear[i] = math.Pow(float64(v)/255, gamma)
	}
	xyz := p.times(linear)
	var out [3]uint8
	for i, v := range sRGB.inverse().times(xyz) {
		v = min(max(v, 0), 1)
		if v <= 0.0031308 {
			v *= 12.92
		} else {
			v = 1.055*math.Pow(v, 1/2.4) - 0.055
		}
		out[i] = uint8(math.Round(255 * v))
	}
	return out
}

func (p primaries) times(v [3]float64) (out [3]float64) {
	for i, row := range p {
		for k, c := range row {
			out[i] += c * v[k]
		}
	}
	return out
}

func (p primaries) inverse() (out primaries) {
	cofactor := func(r, c int) float64 {
		r1, r2, c1, c2 := (r+1)%3, (r+2)%3, (c+1)%3, (c+2)%3
		return p[r1][c1]*p[r2][c2] - p[r1][c2]*p[r2][c1]
	}
	det := p[0][0]*cofactor(0, 0) + p[0][1]*cofactor(0, 1) + p[0][2]*cofactor(0, 2)
	for r := range 3 {
		for c := range 3 {
			out[r][c] = cofactor(c, r) / det
		}
	}
	return out
}

// colours is a picture of many colours.
func colours() *image.NRGBA {
	m := image.NewNRGBA(image.Rect(0, 0, 64, 64))
	for i := range 64 * 64 {
		m.SetNRGBA(i%64, i/64, color.NRGBA{uint8(i % 16 * 17), uint8(i / 16 % 16 * 17), uint8(i / 256 * 17), 255})
	}
	return m
}

func TestProfileToSRGB(t *testing.T) {
	for name, c := range map[string]struct {
		space primaries
		gamma float64
	}{"Display P3, gamma 2.2": {displayP3, 2.2}, "sRGB primaries, gamma 1.8": {sRGB, 1.8}} {
		t.Run(name, func(t *testing.T) {
			m := colours()
			got := decode(t, withChunk(encodePNG(t, m), iccp(profile(c.space, c.gamma))), AlphaDrop)
			changed := false
			for i := range 64 * 64 {
				in := m.NRGBAAt(i%64, i/64)
				want := c.space.toSRGB(in, c.gamma)
				for k, v := range want {
					if d := int(v) - int(got.Pix[3*i+k]); d < -1 || d > 1 {
						t.Fatalf("%v becomes %v, want %v", in, got.Pix[3*i:3*i+3], want)
					}
				}
				changed = changed || want != [3]uint8{in.R, in.G, in.B}
			}
			if !changed {
				t.Error("the profile changes nothing, so this tests nothing")
			}
		})
	}
}

func TestCodePointsToSRGB(t *testing.T) {
	m := colours()
	file := encodePNG(t, m)
	plain := decode(t, file, AlphaDrop)
	for name, c := range map[string]struct {
		points  string
		changes bool
	}{
		"sRGB":                  {"\x01\x0d\x00\x01", false},
		"unspecified":           {"\x02\x02\x00\x01", false},
		"BT.709 as cameras say": {"\x01\x01\x00\x01", false},
		"Display P3":            {"\x0c\x0d\x00\x01", true},
	} {
		t.Run(name, func(t *testing.T) {
			got := decode(t, withChunk(file, []byte("cICP"+c.points)), AlphaDrop)
			if changed := !bytes.Equal(got.Pix, plain.Pix); changed != c.changes {
				t.Errorf("changes the colours: %v", changed)
			}
			if black := got.Pix[:3]; !bytes.Equal(black, []byte{0, 0, 0}) {
				t.Errorf("black becomes %v", black)
			}
		})
	}
}

// TestBrokenProfileIsIgnored: the picture is whole, so it is used.
func TestBrokenProfileIsIgnored(t *testing.T) {
	file := encodePNG(t, colours())
	plain := decode(t, file, AlphaDrop)
	good := profile(displayP3, 2.2)
	many := bytes.Clone(good)
	binary.BigEndian.PutUint32(many[128:], math.MaxUint32)
	outside := bytes.Clone(good)
	binary.BigEndian.PutUint32(outside[132+4:], 1<<30)
	gray := bytes.Clone(good)
	copy(gray[16:], "GRAY")
	for name, chunk := range map[string][]byte{
		"cut":                 iccp(good[:100]),
		"4 billion tags":      iccp(many),
		"a tag outside":       iccp(outside),
		"for grey pixels":     iccp(gray),
		"not a zlib stream":   []byte("iCCPtest\x00\x00rubbish"),
		"an unknown encoding": []byte("iCCPtest\x00\x07rubbish"),
	} {
		t.Run(name, func(t *testing.T) {
			if got := decode(t, withChunk(file, chunk), AlphaDrop); !bytes.Equal(got.Pix, plain.Pix) {
				t.Error("the colours are changed")
			}
		})
	}
}
