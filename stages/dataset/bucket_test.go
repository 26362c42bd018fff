package dataset

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"longship/stages/port"
)

func TestBucketOf(t *testing.T) {
	for _, c := range []struct {
		w, h, resolution int
		want             port.Bucket
	}{
		{1920, 1080, 512, port.Bucket{W: 672, H: 384}},
		{800, 1200, 768, port.Bucket{W: 624, H: 944}},
		{3000, 1000, 1024, port.Bucket{W: 1760, H: 592}},
		{1024, 1024, 512, port.Bucket{W: 512, H: 512}},
		{300, 300, 512, port.Bucket{W: 304, H: 304}}, // under the area: its size, on the grid
		{512, 512, 512, port.Bucket{W: 512, H: 512}},
		{16, 16, 512, port.Bucket{W: 16, H: 16}},
		{24, 16, 512, port.Bucket{W: 16, H: 16}},       // floor and ceil as near: the first
		{2000, 16, 64, port.Bucket{W: 704, H: 16}},     // no corner within the area
		{16, 20000, 512, port.Bucket{W: 16, H: 18096}}, // nor here
	} {
		t.Run(fmt.Sprintf("%dx%d at %d", c.w, c.h, c.resolution), func(t *testing.T) {
			require.Equal(t, c.want, bucketOf(c.w, c.h, c.resolution))
		})
	}
}

func TestBucketProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, h := rapid.IntRange(minSide, 20000).Draw(t, "w"), rapid.IntRange(minSide, 20000).Draw(t, "h")
		r := rapid.IntRange(64, 2048).Draw(t, "resolution")
		b := bucketOf(w, h, r)
		if b.W < grid || b.H < grid || b.W%grid != 0 || b.H%grid != 0 {
			t.Fatalf("%v is off the grid", b)
		}
		if b.W > grid && b.H > grid && b.W*b.H > r*r {
			t.Fatalf("%v is above the area of %d", b, r*r)
		}
		if b.W >= w+grid || b.H >= h+grid {
			t.Fatalf("%v enlarges %dx%d by a whole cell", b, w, h)
		}
		if turned := bucketOf(h, w, r); turned.W*turned.H != b.W*b.H {
			t.Fatalf("%dx%d gives %v, turned %v", w, h, b, turned)
		}
	})
}
