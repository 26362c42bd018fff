package gputest

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"longship/gpu"
)

// clock returns the device's clock; a device without one skips the test.
func (b bench) clock() gpu.Clock {
	c, ok := b.dev.(gpu.Clock)
	if !ok {
		b.Skip("the device takes no times")
	}
	return c
}

// times tests that stamps give the time on the device, over streams and over
// what one waits for of another, and that stamps given back can be used again.
func times(t *testing.T, b bench) {
	const pause, slack = 30 * time.Millisecond, 2 * time.Millisecond
	c := b.clock()
	one, two := b.stream("one"), b.stream("two")
	for range 3 {
		gate := make(chan struct{})
		base := c.Stamp(one)
		require.Equal(t, "one", base.Of())
		one.Do(func() error { <-gate; return nil })
		slept := c.Stamp(one)
		require.NoError(t, two.Sync())
		early := c.Stamp(two)
		two.Wait(one.Record())
		late := c.Stamp(two)
		require.NoError(t, eventuallyReached(c, base))

		got, err := c.Times(base, early, slept, late)
		require.NoError(t, err)
		require.LessOrEqual(t, len(got), 1, "a stamp behind work that has not run has a time")
		_, err = c.Times(slept, base)
		require.ErrorContains(t, err, "stream one")
		time.Sleep(pause)
		close(gate)
		require.NoError(t, errors.Join(one.Sync(), two.Sync()))

		got, err = c.Times(base, base, early, slept, late)
		require.NoError(t, err)
		require.Len(t, got, 4)
		require.Zero(t, got[0])
		require.Less(t, got[1], got[2])
		require.Greater(t, got[2], pause-slack)
		require.Less(t, got[2], pause+2*time.Second)
		require.GreaterOrEqual(t, got[3], got[2]-time.Microsecond)
		back, err := c.Times(late, base)
		require.NoError(t, err)
		require.InDelta(t, -got[3], back[0], float64(2*time.Microsecond))
		c.Reuse(base, early, slept, late)
	}
	var many []gpu.Stamp
	for range 1000 {
		many = append(many, c.Stamp(one))
	}
	require.NoError(t, one.Sync())
	got, err := c.Times(many[0], many...)
	require.NoError(t, err)
	require.Len(t, got, len(many))
	require.IsNonDecreasing(t, got)
	c.Reuse(many...)
	c.Reuse(c.Stamp(one), c.Stamp(two)) // not reached yet, it may be
	require.NoError(t, errors.Join(one.Close(), two.Close()))
}

// eventuallyReached waits a moment until a stamp has a time.
func eventuallyReached(c gpu.Clock, s gpu.Stamp) (err error) {
	for range 1000 {
		if _, err = c.Times(s, s); err == nil {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
	return err
}

// timesOfFailed tests that there is no time of what was dropped.
func timesOfFailed(t *testing.T, b bench) {
	c := b.clock()
	s, other := b.stream("s"), b.stream("other")
	base := c.Stamp(other)
	first := errors.New("first")
	s.Fail(first)
	dropped := c.Stamp(s)
	require.ErrorIs(t, s.Sync(), first)
	require.NoError(t, other.Sync())
	_, err := c.Times(base, dropped)
	require.ErrorIs(t, err, first)
	c.Reuse(base, dropped)
	require.ErrorIs(t, s.Close(), first)
	require.NoError(t, other.Close())
}
