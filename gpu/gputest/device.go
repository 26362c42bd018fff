// Package gputest has the tests that every gpu.Device must pass: the promises
// of package gpu about buffers, order, events and errors, and the weight
// streamer of gpu/memory on top of them. They use copies and host functions
// alone, so that a device is tested before it has kernels; opstest tests those.
package gputest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"longship/gpu"
)

// Device tests the device that open gives. Each test opens its own and closes it.
func Device(t *testing.T, open func(t testing.TB) gpu.Device) {
	for _, test := range []struct {
		name string
		run  func(t *testing.T, b bench)
	}{
		{"copies", copies},
		{"copies run in order", order},
		{"queuing does not wait", queuing},
		{"events order streams", events},
		{"any order that events give", anyOrder},
		{"await ends with its context", awaiting},
		{"the first error sticks", sticky},
		{"a failed stream fails those that wait for it", spreading},
		{"faulty copies", faultyCopies},
		{"many streams", manyStreams},
		{"too large a buffer", tooLarge},
		{"times", times},
		{"times of work that failed", timesOfFailed},
	} {
		t.Run(test.name, func(t *testing.T) {
			dev := open(t)
			test.run(t, bench{t, dev})
			require.NoError(t, dev.Close())
			require.NoError(t, dev.Close(), "a second Close")
		})
	}
	t.Run("close names what is open", func(t *testing.T) {
		dev := open(t)
		s, err := dev.NewStream("left open")
		require.NoError(t, err)
		buf, err := dev.Alloc(10)
		require.NoError(t, err)
		require.ErrorContains(t, dev.Close(), "1 buffers (10 bytes) are still open")
		if dev.Info().Kind == "cpu" { // holds nothing of its own, and may be closed again
			require.NoError(t, s.Close())
		}
		require.NoError(t, buf.Free())
	})
}

// bench is a device under test; what it makes is freed when the test's device is closed.
type bench struct {
	*testing.T
	dev gpu.Device
}

// stream opens a stream and returns it with its end.
func (b bench) stream(name string) gpu.Stream {
	s, err := b.dev.NewStream(name)
	require.NoError(b, err)
	return s
}

func (b bench) alloc(n int64) gpu.Buffer {
	buf, err := b.dev.Alloc(n)
	require.NoError(b, err)
	return buf
}

func (b bench) host(n int64) gpu.Buffer {
	buf, err := b.dev.AllocHost(n)
	require.NoError(b, err)
	return buf
}

func whole(buf gpu.Buffer) gpu.Region { return gpu.Region{Buf: buf, Len: buf.Size()} }

func free(t testing.TB, buffers ...gpu.Buffer) {
	for _, buf := range buffers {
		require.NoError(t, buf.Free())
		require.NoError(t, buf.Free(), "a second Free")
	}
}

func copies(t *testing.T, b bench) {
	s := b.stream("s")
	for _, n := range []int64{0, 1, 100, 1<<20 + 3, 80 << 20} {
		from, to, x, y := b.host(n+16), b.host(n+16), b.alloc(n+16), b.alloc(n+16)
		for i := range from.Host() {
			from.Host()[i], to.Host()[i] = byte(i*7), 0
		}
		s.Copy(gpu.Region{Buf: x, Off: 3, Len: n}, gpu.Region{Buf: from, Off: 1, Len: n})
		s.Copy(gpu.Region{Buf: y, Off: 8, Len: n}, gpu.Region{Buf: x, Off: 3, Len: n})
		s.Copy(gpu.Region{Buf: to, Off: 5, Len: n}, gpu.Region{Buf: y, Off: 8, Len: n})
		require.NoError(t, s.Sync())
		require.Equal(t, from.Host()[1:1+n], to.Host()[5:5+n])
		require.Zero(t, to.Host()[4])
		require.Zero(t, to.Host()[5+n])
		s.Copy(whole(to), whole(from)) // from host to host
		require.NoError(t, s.Sync())
		require.Equal(t, from.Host(), to.Host())
		free(t, from, to, x, y)
	}
	require.NoError(t, s.Close())
}

// cell i of a buffer.
func cell(buf gpu.Buffer, i int) gpu.Region {
	return gpu.Region{Buf: buf, Off: int64(i) * 256, Len: 256}
}

func order(t *testing.T, b bench) {
	const n = 2000
	s := b.stream("s")
	host, dev := b.host((n+1)*256), b.alloc((n+1)*256)
	for i := range host.Host() {
		host.Host()[i] = byte(i / 256)
	}
	host.Host()[0] = 77
	s.Copy(whole(dev), whole(host))
	for i := range n { // each reads what the one before wrote
		s.Copy(cell(dev, i+1), cell(dev, i))
	}
	s.Copy(whole(host), whole(dev))
	require.NoError(t, s.Sync())
	require.EqualValues(t, 77, host.Host()[n*256])
	require.NoError(t, s.Close())
	free(t, host, dev)
}

func queuing(t *testing.T, b bench) {
	s := b.stream("s")
	host, dev := b.host(256), b.alloc(256)
	gate := make(chan struct{})
	s.Do(func() error { <-gate; return nil })
	ran := 0
	for i := range 1000 {
		s.Copy(whole(dev), whole(host))
		s.Do(func() error {
			if ran != i {
				return fmt.Errorf("host function %d ran as number %d", i, ran)
			}
			ran++
			return nil
		})
		if i == 10 {
			require.False(t, s.Record().Done())
		}
	}
	e := s.Record()
	close(gate)
	require.NoError(t, e.Await(context.Background()))
	require.True(t, e.Done())
	require.Equal(t, 1000, ran)
	require.NoError(t, s.Close())
	require.NoError(t, s.Close(), "a second Close")
	free(t, host, dev)
}

func events(t *testing.T, b bench) {
	one, two := b.stream("one"), b.stream("two")
	x, y, host := b.alloc(256), b.alloc(256), b.host(4*256)
	for i := range host.Host() {
		host.Host()[i] = byte(i / 256)
	}
	gate := make(chan struct{})
	one.Copy(whole(x), cell(host, 0))
	one.Do(func() error { <-gate; return nil })
	one.Copy(whole(x), cell(host, 1))
	written := one.Record()
	two.Wait(written)
	two.Copy(whole(y), whole(x))
	read := two.Record()
	one.Wait(read)
	one.Copy(whole(x), cell(host, 2))
	one.Copy(cell(host, 3), whole(x))
	require.False(t, written.Done())
	require.False(t, read.Done())
	close(gate)
	require.NoError(t, read.Await(context.Background()))
	require.True(t, written.Done() || eventually(written))
	two.Copy(cell(host, 0), whole(y))
	require.NoError(t, errors.Join(one.Sync(), two.Sync()))
	require.EqualValues(t, 1, host.Host()[0], "what two read")
	require.EqualValues(t, 2, host.Host()[3*256], "what one wrote last")
	require.NoError(t, errors.Join(one.Close(), two.Close()))
	free(t, x, y, host)
}

// eventually waits a moment for an event that was reached but not seen yet.
func eventually(e gpu.Event) bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return e.Await(ctx) == nil && e.Done()
}

// anyOrder queues random copies on several streams, ordered by events where
// they touch the same cell, and compares with the same copies one by one.
func anyOrder(t *testing.T, b bench) {
	const cells, streams, n = 8, 5, 400
	r := rand.New(rand.NewPCG(1, 2))
	dev, host := b.alloc(cells*256), b.host(cells*256)
	want := make([]byte, cells)
	for i := range host.Host() {
		host.Host()[i] = byte(i / 256)
		want[i/256] = byte(i / 256)
	}
	var all []gpu.Stream
	for i := range streams {
		all = append(all, b.stream(fmt.Sprint("s", i)))
	}
	all[0].Copy(whole(dev), whole(host))
	var last [cells][]gpu.Event // the accesses of a cell since its last write, and that
	for i := range last {
		last[i] = []gpu.Event{all[0].Record()}
	}
	for range n {
		s, to, from := all[r.IntN(streams)], r.IntN(cells), r.IntN(cells)
		if to == from {
			continue
		}
		for _, e := range append(last[to], last[from][0]) {
			s.Wait(e)
		}
		s.Copy(cell(dev, to), cell(dev, from))
		e := s.Record()
		last[to] = []gpu.Event{e}
		last[from] = append(last[from], e)
		want[to] = want[from]
	}
	for _, c := range last {
		for _, e := range c {
			all[0].Wait(e)
		}
	}
	all[0].Copy(whole(host), whole(dev))
	require.NoError(t, all[0].Sync())
	for i, w := range want {
		require.Equal(t, w, host.Host()[i*256], "cell %d", i)
	}
	for _, s := range all {
		require.NoError(t, s.Close())
	}
	free(t, dev, host)
}

func awaiting(t *testing.T, b bench) {
	s := b.stream("s")
	gate := make(chan struct{})
	s.Do(func() error { <-gate; return nil })
	e := s.Record()
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	require.ErrorIs(t, e.Await(ctx), context.DeadlineExceeded)
	close(gate)
	var wg sync.WaitGroup
	for range 4 { // several may wait for one event
		wg.Go(func() {
			if err := e.Await(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	require.NoError(t, s.Close())
}

func sticky(t *testing.T, b bench) {
	s := b.stream("compute")
	x, host := b.alloc(256), b.host(512)
	clear(host.Host())
	host.Host()[0] = 1
	first := errors.New("first")
	s.Copy(whole(x), cell(host, 0))
	before := s.Record()
	s.Do(func() error { return first })
	s.Copy(cell(host, 1), whole(x))
	ran := false
	s.Do(func() error { ran = true; return errors.New("second") })
	e := s.Record()
	require.NoError(t, before.Await(context.Background()))
	require.ErrorIs(t, e.Await(context.Background()), first)
	require.EqualError(t, s.Sync(), "stream compute: host function: first")
	require.False(t, ran)
	require.Zero(t, host.Host()[256], "work behind the error was not dropped")
	require.ErrorIs(t, s.Close(), first)
	require.ErrorIs(t, s.Close(), first)

	s = b.stream("failed")
	s.Fail(gpu.ErrOutOfMemory)
	s.Fail(first)
	require.ErrorIs(t, s.Sync(), gpu.ErrOutOfMemory)
	require.ErrorIs(t, s.Close(), gpu.ErrOutOfMemory)
	free(t, x, host)
}

func spreading(t *testing.T, b bench) {
	producer, consumer, other := b.stream("producer"), b.stream("consumer"), b.stream("other")
	gate := make(chan struct{})
	first := errors.New("first")
	producer.Do(func() error { <-gate; return first })
	consumer.Wait(producer.Record())
	ran := false
	consumer.Do(func() error { ran = true; return nil })
	close(gate)
	require.ErrorIs(t, consumer.Sync(), first)
	require.False(t, ran, "work that waited for dropped work was done")
	require.NoError(t, other.Sync())
	require.NoError(t, other.Close())
	require.ErrorIs(t, consumer.Close(), first)
	require.ErrorIs(t, producer.Close(), first)
}

func faultyCopies(t *testing.T, b bench) {
	buf := b.alloc(8)
	s := b.stream("copies")
	s.Copy(gpu.Region{Buf: buf, Len: 8}, gpu.Region{Buf: buf, Len: 4})
	require.EqualError(t, s.Sync(), "stream copies: copy: 4 bytes to a region of 8")
	require.Error(t, s.Close())
	free(t, buf)
}

func manyStreams(t *testing.T, b bench) {
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			if err := useStream(b.dev, byte(i)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// useStream sends a byte to the device and back on a stream of its own.
func useStream(dev gpu.Device, v byte) (err error) {
	s, err := dev.NewStream(fmt.Sprint("stream ", v))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	x, err := dev.Alloc(1 << 16)
	if err != nil {
		return err
	}
	defer x.Free()
	host, err := dev.AllocHost(1 << 16)
	if err != nil {
		return err
	}
	defer host.Free()
	for range 20 {
		for i := range host.Host() {
			host.Host()[i] = v
		}
		s.Copy(whole(x), whole(host))
		if err := s.Record().Await(context.Background()); err != nil {
			return err
		}
		clear(host.Host())
		s.Copy(whole(host), whole(x))
		if err := s.Sync(); err != nil {
			return err
		}
		for i, h := range host.Host() {
			if h != v {
				return fmt.Errorf("stream %d: byte %d came back as %d", v, i, h)
			}
		}
	}
	return nil
}

func tooLarge(t *testing.T, b bench) {
	_, err := b.dev.Alloc(1 << 60)
	require.ErrorIs(t, err, gpu.ErrOutOfMemory)
	require.ErrorContains(t, err, "1152921504606846976 bytes")
}
