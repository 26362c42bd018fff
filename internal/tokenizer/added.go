package tokenizer

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// addedToken is an entry of added_tokens: text that is always one token.
type addedToken struct {
	ID         int    `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"` // only where no word goes on at either side
	LStrip     bool   `json:"lstrip"`      // swallows the spaces before it
	RStrip     bool   `json:"rstrip"`      // swallows the spaces after it
	Normalized bool   `json:"normalized"`  // looked for in the normalised text
}

// addedTokens finds added tokens in a text: at the leftmost place where one
// begins, the longest, as Aho-Corasick with leftmost-longest matching does.
type addedTokens struct{ root trie }

// trie is a byte-wise prefix tree.
type trie struct {
	next  map[byte]*trie
	token *addedToken // that ends here
}

// newAddedTokens returns those to be found in the text as it is, and those to
// be found in the normalised text, whose contents are normalised too.
func newAddedTokens(list []addedToken, normalize normalizer) (plain, normalized *addedTokens) {
	plain, normalized = &addedTokens{}, &addedTokens{}
	for i := range list {
		t := &list[i]
		if t.Normalized {
			normalized.root.add(normalize(t.Content), t)
		} else {
			plain.root.add(t.Content, t)
		}
	}
	return plain, normalized
}

func (n *trie) add(content string, t *addedToken) {
	if content == "" {
		return
	}
	for i := range len(content) {
		if n.next == nil {
			n.next = map[byte]*trie{}
		}
		child := n.next[content[i]]
		if child == nil {
			child = &trie{}
			n.next[content[i]] = child
		}
		n = child
	}
	if n.token == nil { // of equal contents the first counts
		n.token = t
	}
}

// longest returns the longest token that text begins with, and its length.
func (n *trie) longest(text string) (found *addedToken, length int) {
	for i := 0; ; i++ {
		if n.token != nil {
			found, length = n.token, i
		}
		if i == len(text) {
			return
		}
		child := n.next[text[i]]
		if child == nil {
			return
		}
		n = child
	}
}

// cut walks over text: ids of the tokens found are appended to ids, and rest is
// called with each non-empty stretch between them, in order.
func (a *addedTokens) cut(text string, ids *[]int, rest func(string)) {
	done := 0 // what comes before has been handed on
	for at := 0; at < len(text); {
		t, n := a.root.longest(text[at:])
		if t == nil {
			at++
			continue
		}
		start, end := at, at+n
		at = end
		if t.SingleWord && (endsWithWord(text[:start]) || startsWithWord(text[end:])) {
			continue
		}
		if t.LStrip {
			start = len(strings.TrimRightFunc(text[:start], unicode.IsSpace))
		}
		if t.RStrip {
			end = len(text) - len(strings.TrimLeftFunc(text[end:], unicode.IsSpace))
		}
		if start > done {
			rest(text[done:start])
		}
		*ids = append(*ids, t.ID)
		done, at = end, max(at, end)
	}
	if done < len(text) {
		rest(text[done:])
	}
}

// isWord says whether r is a word character of Unicode's regular expressions (UTS 18).
func isWord(r rune) bool {
	return unicode.In(r, unicode.L, unicode.Nl, unicode.Other_Alphabetic, unicode.M, unicode.Nd, unicode.Pc, unicode.Join_Control)
}

func endsWithWord(s string) bool {
	r, _ := utf8.DecodeLastRuneInString(s)
	return s != "" && isWord(r)
}

func startsWithWord(s string) bool {
	r, _ := utf8.DecodeRuneInString(s)
	return s != "" && isWord(r)
}
