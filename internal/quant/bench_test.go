package quant

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"longship/internal/dtype"
	"longship/internal/flux2"
	"longship/internal/safetensors"
	"longship/internal/weights"
)

// BenchmarkWrite quantises a model of 177 MB in bfloat16: to units that go
// nowhere (what the cores have to do), to a file, and the file verified.
func BenchmarkWrite(b *testing.B) {
	c := flux2.Default()
	c.DoubleBlocks, c.SingleBlocks, c.Heads, c.TextDim, c.Guidance = 1, 3, 8, 1024, false
	dir := b.TempDir()
	var outs []safetensors.Out
	var size int64
	for _, t := range (weights.Layout{}).Targets(c) {
		n := 1
		for _, d := range t.Shape {
			n *= d
		}
		half := make([]uint16, n)
		for i := range half {
			x := uint32(i)*2654435761 ^ uint32(i)>>7
			half[i] = dtype.BF16((float32(x>>8&0xffff)/65536 - 0.5) * (float32(x>>24)/256 + 0.01))
		}
		outs = append(outs, safetensors.OutBytes(t.Name, safetensors.BF16, dtype.Bytes(half), t.Shape...))
		size += int64(2 * n)
	}
	f, err := os.Create(filepath.Join(dir, "model.safetensors"))
	require.NoError(b, err)
	_, err = safetensors.Write(f, nil, outs)
	require.NoError(b, err)
	require.NoError(b, f.Close())
	model := open(b, f.Name())
	path := filepath.Join(dir, "x")
	for _, qtype := range QTypes[:4] {
		opt := Options{QType: qtype, Outer: qtype, keep: true}
		b.Run(qtype+"/units", func(b *testing.B) {
			b.SetBytes(size)
			for b.Loop() {
				h, err := plan(model, opt)
				require.NoError(b, err)
				require.NoError(b, writeUnits(context.Background(), nowhere{}, &h, model, opt))
			}
		})
		b.Run(qtype+"/file", func(b *testing.B) {
			b.SetBytes(size)
			for b.Loop() {
				require.NoError(b, Write(context.Background(), path, model, opt))
			}
		})
		b.Run(qtype+"/verify", func(b *testing.B) {
			set, err := Open(path)
			require.NoError(b, err)
			defer set.Close()
			info, err := os.Stat(path)
			require.NoError(b, err)
			b.SetBytes(info.Size())
			for b.Loop() {
				require.NoError(b, Verify(context.Background(), set, nil))
			}
		})
	}
}

// nowhere is a file that keeps nothing.
type nowhere struct{}

func (nowhere) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }
