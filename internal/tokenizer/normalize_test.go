package tokenizer

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/text/unicode/norm"
	"pgregory.net/rapid"
)

// The slow way is the fast way wherever x/text adds nothing of its own.
func TestNormalizeSlowlyMatchesFast(t *testing.T) {
	marks := []rune("ae\u00e9\u1eadAͅΩ\u0301\u0323\u0307\u0327\u0345\u1100\u1161\u11a8가각\u212b\ufb01 \u0fb2\u0f80")
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(
			rapid.StringOfN(rapid.SampledFrom(marks), 0, 12, -1),
			rapid.StringN(0, 20, -1),
		).Draw(t, "text")
		for _, c := range []struct {
			fast, decomposed norm.Form
			composed         bool
		}{{norm.NFC, norm.NFD, true}, {norm.NFD, norm.NFD, false}, {norm.NFKC, norm.NFKD, true}, {norm.NFKD, norm.NFKD, false}} {
			if got, want := normalizeSlowly(text, c.decomposed, c.composed), c.fast.String(text); got != want {
				t.Fatalf("%+q: %+q, want %+q", text, got, want)
			}
		}
	})
}

func TestManyMarksStayTogether(t *testing.T) {
	nfc, err := newNormalizer(&step{Type: "NFC"})
	require.NoError(t, err)
	for _, n := range []int{5, 31, 100} {
		require.Equal(t, "á"+strings.Repeat("\u0301", n-1)+"b", nfc("a"+strings.Repeat("\u0301", n)+"b"))
	}
}
