package tokenizer

import (
	"fmt"
	"slices"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// normalizer rewrites text before it is split.
type normalizer func(string) string

func newNormalizer(s *step) (normalizer, error) {
	if s == nil {
		return func(text string) string { return text }, nil
	}
	switch s.Type {
	case "NFC":
		return form(norm.NFC, norm.NFD, true), nil
	case "NFD":
		return form(norm.NFD, norm.NFD, false), nil
	case "NFKC":
		return form(norm.NFKC, norm.NFKD, true), nil
	case "NFKD":
		return form(norm.NFKD, norm.NFKD, false), nil
	case "Sequence":
		var all []normalizer
		for i := range s.Normalizers {
			n, err := newNormalizer(&s.Normalizers[i])
			if err != nil {
				return nil, err
			}
			all = append(all, n)
		}
		return func(text string) string {
			for _, n := range all {
				text = n(text)
			}
			return text
		}, nil
	}
	return nil, fmt.Errorf("normalizer type %q is not supported", s.Type)
}

// form returns a Unicode normalisation form. x/text follows the stream-safe
// format, which breaks up more than 30 marks on one letter with a U+034F that
// the reference implementation does not put there; such text takes the slow way.
func form(fast, decomposed norm.Form, composed bool) normalizer {
	return func(text string) string {
		if !manyMarks(text) {
			return fast.String(text)
		}
		return normalizeSlowly(text, decomposed, composed)
	}
}

// manyMarks says whether text may hold a run of more than 30 combining
// characters after decomposition; one character becomes at most three of them.
func manyMarks(text string) bool {
	run := 0
	for _, r := range text {
		if r < 0x300 || norm.NFKD.PropertiesString(string(r)).BoundaryBefore() {
			run = 0
			continue
		}
		if run++; run > 30/3 {
			return true
		}
	}
	return false
}

// normalizeSlowly is the algorithm of Unicode's standard annex 15: decompose,
// order marks by their class, and compose what is next to each other.
func normalizeSlowly(text string, decomposed norm.Form, composed bool) string {
	var chars []rune
	for _, r := range text {
		chars = append(chars, []rune(decomposed.String(string(r)))...)
	}
	for lo := 0; lo < len(chars); lo++ {
		hi := lo
		for hi < len(chars) && class(chars[hi]) != 0 {
			hi++
		}
		slices.SortStableFunc(chars[lo:hi], func(a, b rune) int { return class(a) - class(b) })
		lo = hi
	}
	if !composed {
		return string(chars)
	}
	out := chars[:0]
	starter, last := -1, 0 // the starter's place in out, and the class of what follows it last
	for _, c := range chars {
		adjacent := starter == len(out)-1
		if starter >= 0 && (adjacent || last != 0 && last < class(c)) {
			if both := norm.NFC.String(string([]rune{out[starter], c})); utf8.RuneCountInString(both) == 1 {
				out[starter], _ = utf8.DecodeRuneInString(both)
				continue
			}
		}
		if last = class(c); last == 0 {
			starter = len(out)
		}
		out = append(out, c)
	}
	return string(out)
}

// class is a character's canonical combining class, 0 for starters.
func class(r rune) int { return int(norm.NFD.PropertiesString(string(r)).CCC()) }
