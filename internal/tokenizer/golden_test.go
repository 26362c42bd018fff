package tokenizer

import (
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"longship/internal/golden"
)

func load(t testing.TB, dir string) *Tokenizer {
	t.Helper()
	tok, err := Load(dir)
	require.NoError(t, err)
	return tok
}

// The three regular expressions cut awkward texts as the reference does.
func TestSplitsMatchReference(t *testing.T) {
	var splits map[string]struct {
		Regex string
		Cases []struct {
			Text   string
			Pieces []string
		}
	}
	raw := map[string]any{}
	golden.JSON(t, &raw, "golden", "tokenizer_splits.json")
	delete(raw, "nfc")
	remarshal(t, raw, &splits)
	require.NotEmpty(t, splits)
	for name, s := range splits {
		t.Run(name, func(t *testing.T) {
			split, err := newSplit(step{Type: "Split", Behavior: "Isolated", Pattern: pattern{Regex: &s.Regex}})
			require.NoError(t, err)
			require.NotEmpty(t, s.Cases)
			for _, c := range s.Cases {
				got := []string{}
				split(c.Text, func(p string) { got = append(got, p) })
				require.Equal(t, c.Pieces, got, "%q", c.Text)
			}
		})
	}
}

func TestNFCMatchesReference(t *testing.T) {
	var f struct {
		NFC []struct{ Text, NFC string }
	}
	golden.JSON(t, &f, "golden", "tokenizer_splits.json")
	require.NotEmpty(t, f.NFC)
	nfc, err := newNormalizer(&step{Type: "NFC"})
	require.NoError(t, err)
	for _, c := range f.NFC {
		require.Equal(t, c.NFC, nfc(c.Text), "%q", c.Text)
	}
}

type idCase struct {
	Text    string
	IDs     []int
	Decoded *string
}

func TestIDsMatchReference(t *testing.T) {
	var ids map[string][]idCase
	golden.JSON(t, &ids, "golden", "tokenizer_ids.json")
	var alt []idCase
	golden.JSON(t, &alt, "golden", "tokenizer_alt", "ids.json")
	for name, c := range map[string]struct {
		dir   string
		cases []idCase
	}{
		"mistral":                             {golden.Path("tiny-dev", "tokenizer"), ids["mistral"]},
		"qwen":                                {golden.Path("tiny-klein", "tokenizer"), ids["qwen"]},
		"merges as strings, Tekken's pattern": {golden.Path("golden", "tokenizer_alt"), alt},
	} {
		t.Run(name, func(t *testing.T) {
			tok := load(t, c.dir)
			require.NotEmpty(t, c.cases)
			for range 2 { // the second time from the cache
				for _, c := range c.cases {
					got := tok.Encode(c.Text)
					require.True(t, slices.Equal(c.IDs, got), "%q: %v, want %v", c.Text, got, c.IDs)
					if c.Decoded != nil {
						require.Equal(t, *c.Decoded, tok.Decode(got))
					}
				}
			}
		})
	}
}

func TestSettings(t *testing.T) {
	for model, want := range map[string]struct{ side, pad string }{"tiny-dev": {}, "tiny-klein": {}} {
		var config struct {
			Side string `json:"padding_side"`
			Pad  string `json:"pad_token"`
		}
		golden.JSON(t, &config, model, "tokenizer", "tokenizer_config.json")
		want.side, want.pad = config.Side, config.Pad
		tok := load(t, golden.Path(model, "tokenizer"))
		require.Equal(t, Settings{PadToken: want.pad, PaddingSide: want.side}, tok.Settings())
		id, ok := tok.Token(want.pad)
		require.True(t, ok)
		require.Equal(t, want.pad, tok.Decode([]int{id}))
	}
}

func FuzzParse(f *testing.F) {
	for _, dir := range []string{golden.Path("tiny-dev", "tokenizer"), golden.Path("tiny-klein", "tokenizer"), golden.Path("golden", "tokenizer_alt")} {
		data, err := os.ReadFile(dir + "/tokenizer.json")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(`{"model":{"type":"BPE","vocab":{"a":-1},"merges":["a b"]},"pre_tokenizer":{"type":"ByteLevel","use_regex":false}}`))
	f.Add([]byte(`{"model":{"type":"Unigram"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		tok, err := Parse(data)
		if err != nil {
			return
		}
		for _, id := range tok.Encode("A photo, it's 12 ſ\u00a0é\r\n") {
			if id < 0 || id >= tok.Size() {
				t.Fatalf("id %d of %d", id, tok.Size())
			}
		}
	})
}

// FuzzRoundTrip: without a normaliser, decoding gives back any text.
func FuzzRoundTrip(f *testing.F) {
	var ids map[string][]idCase
	golden.JSON(f, &ids, "golden", "tokenizer_ids.json")
	for _, c := range ids["mistral"] {
		f.Add(c.Text)
	}
	f.Add("\xff\xfe broken")
	tok := load(f, golden.Path("tiny-dev", "tokenizer"))
	f.Fuzz(func(t *testing.T, text string) {
		want := valid(text)
		if got := tok.Decode(tok.Encode(text)); got != want {
			t.Fatalf("%q comes back as %q", want, got)
		}
	})
}
