package cache_test

import (
	"bytes"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What a killed process said it had put is there, and nothing is misread.
func TestKilled(t *testing.T) {
	dir := t.TempDir()
	for range 3 {
		other, out := start(t, "put", dir)
		time.AfterFunc(time.Duration(20+rand.IntN(200))*time.Millisecond, func() { other.Process.Kill() })
		last := -1
		for out.Scan() {
			n, err := strconv.Atoi(out.Text())
			require.NoError(t, err)
			last = n
		}
		other.Wait()
		require.Positive(t, last)

		s := open(t, dir)
		for i := 0; i <= last+1; i++ {
			has := s.Has(t.Context(), ref(i, crashSize))
			if i <= last {
				require.True(t, has, "tensor %d of %d", i, last)
			}
			if has {
				got, err := s.Get(t.Context(), ref(i, crashSize), nil)
				require.NoError(t, err)
				require.True(t, bytes.Equal(pattern(i), got))
			}
		}
		require.NoError(t, s.Close())
	}
}
