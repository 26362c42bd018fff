package dataset

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"testing"
	"time"

	"longship/stages/port"
)

// BenchmarkKnownFiles is a start with files that the cache knows: images with
// captions, each in the time a file needs.
func BenchmarkKnownFiles(b *testing.B) {
	const files = 10_000
	dir := b.TempDir()
	picture := []byte(picturePNG(64, 64, 1))
	for i := range files {
		name := fmt.Sprintf("%s/%05d", dir, i)
		binary.BigEndian.PutUint32(picture[len(picture)-4:], uint32(i)) // another content, never decoded
		if err := os.WriteFile(name+".png", picture, 0o644); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(name+".txt", []byte("a grey square"), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	time.Sleep(100 * time.Millisecond) // so that the last ones are remembered too
	s, store := newStage(b, dir, nil)
	run := func() {
		samples, found := samplesOf(b, s, store)
		if len(samples) != files || len(found.aside) > 0 {
			b.Fatalf("%d samples, %d set aside", len(samples), len(found.aside))
		}
		if err := port.PutSamples(context.Background(), store, s.listName(), samples); err != nil {
			b.Fatal(err)
		}
	}
	run()
	for b.Loop() {
		run()
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/files, "µs/file")
}

func BenchmarkBucketOf(b *testing.B) {
	for b.Loop() {
		bucketOf(4032, 3024, 1024)
	}
}
