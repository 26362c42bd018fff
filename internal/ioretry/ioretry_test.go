package ioretry

import (
	"context"
	"errors"
	"io/fs"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDo(t *testing.T) {
	pauses = []time.Duration{1, 1, 1}
	broken := &fs.PathError{Op: "read", Path: "a.jpg", Err: syscall.EIO}
	for name, c := range map[string]struct {
		errs  []error // of the calls, the last of all later ones
		calls int
		err   error
	}{
		"works at once":       {[]error{nil}, 1, nil},
		"works after a while": {[]error{broken, broken, nil}, 3, nil},
		"never works":         {[]error{broken}, 4, syscall.EIO},
		"is not there":        {[]error{&fs.PathError{Op: "open", Path: "a.jpg", Err: syscall.ENOENT}}, 1, fs.ErrNotExist},
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			err := Do(t.Context(), func() error {
				calls++
				return c.errs[min(calls, len(c.errs))-1]
			})
			require.Equal(t, c.calls, calls)
			require.ErrorIs(t, err, c.err)
		})
	}
}

func TestDoEndsWithItsContext(t *testing.T) {
	pauses = []time.Duration{time.Hour}
	ctx, cancel := context.WithCancel(t.Context())
	err := Do(ctx, func() error { cancel(); return syscall.EIO })
	require.True(t, errors.Is(err, context.Canceled), "%v", err)
}
