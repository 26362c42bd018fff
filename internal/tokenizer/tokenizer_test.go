package tokenizer

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"longship/internal/golden"
)

func remarshal(t testing.TB, from, to any) {
	t.Helper()
	data, err := json.Marshal(from)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, to))
}

func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// small returns a tokenizer.json as a tree: every byte is a token, and the
// merges given are too.
func small(merges ...string) map[string]any {
	vocab := map[string]int{}
	for b, r := range byteRune {
		vocab[string(r)] = b
	}
	for i, m := range merges {
		vocab[strings.ReplaceAll(m, " ", "")] = 256 + i
	}
	return map[string]any{
		"added_tokens":  []map[string]any{},
		"normalizer":    nil,
		"pre_tokenizer": map[string]any{"type": "ByteLevel", "add_prefix_space": false, "use_regex": false},
		"model":         map[string]any{"type": "BPE", "vocab": vocab, "merges": merges, "ignore_merges": false},
	}
}

func parse(t testing.TB, tree map[string]any) (*Tokenizer, error) {
	t.Helper()
	data, err := json.Marshal(tree)
	require.NoError(t, err)
	return Parse(data)
}

func must(t testing.TB, tree map[string]any) *Tokenizer {
	t.Helper()
	tok, err := parse(t, tree)
	require.NoError(t, err)
	return tok
}

// spell shows ids as the texts they stand for, so that a test reads.
func spell(tok *Tokenizer, ids []int) string {
	var parts []string
	for _, id := range ids {
		parts = append(parts, tok.Decode([]int{id}))
	}
	return strings.Join(parts, "|")
}

func TestMergesLowestRankFirstThenLeftmost(t *testing.T) {
	tok := must(t, small("b c", "a b", "a a", "aa a"))
	for text, want := range map[string]string{
		"abc":    "a|bc",
		"ab":     "ab",
		"aaaa":   "aa|aa",
		"aaa":    "aaa",
		"aaaaa":  "aa|aaa",
		"abcbab": "a|bc|b|ab",
		"":       "",
	} {
		require.Equal(t, want, spell(tok, tok.Encode(text)), text)
	}
}

// The heap gives what the definition gives: join the best pair, again and again.
func TestMergeMatchesDefinition(t *testing.T) {
	merges := []string{"a b", "b a", "ab a", "a a", "b b", "ba ba", "aa bb", "aba b"}
	tok := must(t, small(merges...))
	rapid.Check(t, func(rt *rapid.T) {
		text := rapid.StringOfN(rapid.SampledFrom([]rune("ab")), 0, 40, -1).Draw(rt, "text")
		parts := strings.Split(text, "")
		for {
			best, at := len(merges), -1
			for i := 0; i+1 < len(parts); i++ {
				for rank, m := range merges {
					if m == parts[i]+" "+parts[i+1] && rank < best {
						best, at = rank, i
					}
				}
			}
			if at < 0 {
				break
			}
			parts = append(append(append([]string{}, parts[:at]...), parts[at]+parts[at+1]), parts[at+2:]...)
		}
		if got, want := spell(tok, tok.Encode(text)), strings.Join(parts, "|"); got != want {
			rt.Fatalf("%s: %s, want %s", text, got, want)
		}
	})
}

func TestIgnoreMerges(t *testing.T) {
	tree := small("a b")
	model := tree["model"].(map[string]any)
	model["vocab"].(map[string]int)["xyz"] = 300 // no merge leads there
	tok := must(t, tree)
	require.Equal(t, "x|y|z", spell(tok, tok.Encode("xyz")))
	model["ignore_merges"] = true
	tok = must(t, tree)
	require.Equal(t, "xyz", spell(tok, tok.Encode("xyz")))
}

func TestAddedTokens(t *testing.T) {
	token := func(id int, content string, flags ...string) map[string]any {
		m := map[string]any{"id": id, "content": content}
		for _, f := range flags {
			m[f] = true
		}
		return m
	}
	for name, c := range map[string]struct {
		tokens []map[string]any
		text   string
		want   []int // ids from 1000 on; other tokens are left out
		spell  string
	}{
		"longest at the leftmost place": {[]map[string]any{token(1000, "<a"), token(1001, "<a>"), token(1002, "a>x")}, "-<a>x", []int{1001}, "-|<a>|x"},
		"again and again":               {[]map[string]any{token(1000, "aa")}, "aaaaa", []int{1000, 1000}, "aa|aa|a"},
		"single word":                   {[]map[string]any{token(1000, "cat", "single_word")}, "cat cats _cat (cat)", []int{1000, 1000}, ""},
		"single word, longer one fails": {[]map[string]any{token(1000, "ab", "single_word"), token(1001, "a")}, "abc", nil, "a|b|c"},
		"lstrip":                        {[]map[string]any{token(1000, "<m>", "lstrip")}, "a \t<m> b", []int{1000}, "a|<m>| |b"},
		"rstrip":                        {[]map[string]any{token(1000, "<m>", "rstrip")}, "a <m> \u00a0b", []int{1000}, "a| |<m>|b"},
		"both, side by side":            {[]map[string]any{token(1000, "<m>", "lstrip", "rstrip")}, "<m>  <m>", []int{1000, 1000}, "<m>|<m>"},
		"raw text is not normalised":    {[]map[string]any{token(1000, "é")}, "e\u0301é", []int{1000}, ""},
		"normalised text is":            {[]map[string]any{token(1000, "é", "normalized")}, "e\u0301é", []int{1000, 1000}, "é|é"},
		"normalised content is":         {[]map[string]any{token(1000, "e\u0301", "normalized")}, "é", []int{1000}, ""},
		"nothing matches nothing":       {[]map[string]any{token(1000, "")}, "a", nil, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			tree := small()
			tree["added_tokens"] = c.tokens
			tree["normalizer"] = map[string]any{"type": "NFC"}
			tok := must(t, tree)
			ids := tok.Encode(c.text)
			var got []int
			for _, id := range ids {
				if id >= 1000 {
					got = append(got, id)
				}
			}
			require.Equal(t, c.want, got)
			if c.spell != "" {
				require.Equal(t, c.spell, spell(tok, ids))
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		change func(tree, model map[string]any)
		want   string
	}{
		"model":      {func(_, m map[string]any) { m["type"] = "Unigram" }, `"Unigram"`},
		"no model":   {func(f, _ map[string]any) { delete(f, "model") }, "model"},
		"normalizer": {func(f, _ map[string]any) { f["normalizer"] = map[string]any{"type": "Lowercase"} }, `"Lowercase"`},
		"inner normalizer": {func(f, _ map[string]any) {
			f["normalizer"] = map[string]any{"type": "Sequence", "normalizers": []any{map[string]any{"type": "Strip"}}}
		}, `"Strip"`},
		"pre-tokenizer":    {func(f, _ map[string]any) { f["pre_tokenizer"] = map[string]any{"type": "Metaspace"} }, `"Metaspace"`},
		"no pre-tokenizer": {func(f, _ map[string]any) { f["pre_tokenizer"] = nil }, "ByteLevel"},
		"split behaviour": {func(f, _ map[string]any) {
			f["pre_tokenizer"] = map[string]any{"type": "Split", "behavior": "Removed", "pattern": map[string]any{"Regex": "a"}}
		}, `"Removed"`},
		"split pattern": {func(f, _ map[string]any) {
			f["pre_tokenizer"] = map[string]any{"type": "Split", "behavior": "Isolated", "pattern": map[string]any{"Regex": "(a"}}
		}, "(a"},
		"prefix space":    {func(f, _ map[string]any) { f["pre_tokenizer"].(map[string]any)["add_prefix_space"] = true }, "add_prefix_space"},
		"its own pattern": {func(f, _ map[string]any) { delete(f["pre_tokenizer"].(map[string]any), "use_regex") }, "use_regex"},
		"dropout":         {func(_, m map[string]any) { m["dropout"] = 0.1 }, "dropout"},
		"suffix":          {func(_, m map[string]any) { m["end_of_word_suffix"] = "</w>" }, "</w>"},
		"prefix":          {func(_, m map[string]any) { m["continuing_subword_prefix"] = "##" }, "##"},
		"unknown merge":   {func(_, m map[string]any) { m["merges"] = []string{"a zz"} }, `"zz"`},
		"broken merge":    {func(_, m map[string]any) { m["merges"] = []string{"ab"} }, `"ab"`},
		"missing byte":    {func(_, m map[string]any) { delete(m["vocab"].(map[string]int), "a") }, "0x61"},
		"negative id":     {func(_, m map[string]any) { m["vocab"].(map[string]int)["a"] = -1 }, "-1"},
		"huge id":         {func(f, _ map[string]any) { f["added_tokens"] = []any{map[string]any{"id": 1 << 40, "content": "x"}} }, `"x"`},
	} {
		t.Run(name, func(t *testing.T) {
			tree := small()
			c.change(tree, tree["model"].(map[string]any))
			_, err := parse(t, tree)
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestLoadFaults(t *testing.T) {
	dir := t.TempDir()
	_, err := Load(dir)
	require.ErrorContains(t, err, dir)

	data, err := json.Marshal(small())
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tokenizer.json"), data, 0o644))
	require.Equal(t, Settings{}, load(t, dir).Settings())

	config := filepath.Join(dir, "tokenizer_config.json")
	for text, want := range map[string]string{`{"padding_side":"middle"}`: "middle", `{`: config} {
		require.NoError(t, os.WriteFile(config, []byte(text), 0o644))
		_, err = Load(dir)
		require.ErrorContains(t, err, want)
	}
	require.NoError(t, os.WriteFile(config, []byte(`{"pad_token":{"content":"<pad>"},"padding_side":"left"}`), 0o644))
	require.Equal(t, Settings{PadToken: "<pad>", PaddingSide: "left"}, load(t, dir).Settings())
}

func TestConcurrentEncode(t *testing.T) {
	tok := load(t, golden.Path("tiny-dev", "tokenizer"))
	want := tok.Encode("a photo of a dog in the park")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 50 {
				if got := tok.Encode("a photo of a dog in the park"); fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("%v, want %v", got, want)
				}
			}
		})
	}
	wg.Wait()
}

func BenchmarkEncode(b *testing.B) {
	tok := load(b, golden.Path("tiny-dev", "tokenizer"))
	text := strings.Repeat("A photo of TOK dog, 35mm film; it's sitting in a bucket.\n", 64)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		tok.Encode(text)
	}
}

// BenchmarkParse reads a file of the size of Mistral's.
func BenchmarkParse(b *testing.B) {
	tree := small()
	model := tree["model"].(map[string]any)
	vocab := model["vocab"].(map[string]int)
	var words []string
	for b := range byteRune {
		words = append(words, string(byteRune[b]))
	}
	var merges [][2]string
	for i := 0; len(vocab) < 131072; i++ {
		x, y := words[i%len(words)], words[(i*7+i/len(words))%len(words)]
		if _, ok := vocab[x+y]; !ok && len(x+y) < 24 {
			vocab[x+y] = len(vocab)
			words = append(words, x+y)
		}
		if len(merges) < 270000 && vocab[x+y] != 0 {
			merges = append(merges, [2]string{x, y})
		}
	}
	model["merges"] = merges
	data, err := json.Marshal(tree)
	require.NoError(b, err)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(data); err != nil {
			b.Fatal(err)
		}
	}
}
