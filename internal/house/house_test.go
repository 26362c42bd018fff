// Package house holds the rules of the repository as tests: what may import
// what, that packages say what they are for, and that generated documents are
// what the code says.
package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const root = "../.."

// source is a Go file of the module.
type source struct {
	dir  string // slash path below the root, "gpu/ops"
	name string
	file *ast.File
	test bool
}

// sources parses every Go file of the module, other modules below it left out.
func sources(t *testing.T) []source {
	t.Helper()
	var out []source
	fset := token.NewFileSet()
	require.NoError(t, filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, p)
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			if rel != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata") {
				return fs.SkipDir
			}
			if _, err := os.Stat(filepath.Join(p, "go.mod")); err == nil && rel != "." {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(rel, ".go") {
			return nil
		}
		f, err := parser.ParseFile(fset, p, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		out = append(out, source{dir: path.Dir(rel), name: rel, file: f, test: strings.HasSuffix(rel, "_test.go")})
		return nil
	}))
	return out
}

// below says whether dir is the folder or in it.
func below(dir, folder string) bool { return dir == folder || strings.HasPrefix(dir, folder+"/") }

// layers are the folders from the bottom up; a package imports its own layer
// and those before it.
var layers = [][]string{
	{"pipeline"},
	{"cache", "gpu"},
	{"internal"},
	{"stages", "plugins"},
	{"."},
}

// exceptions are imports against the layers, each with its reason.
var exceptions = map[string][]string{
	// The numbers that ops and weights are made of, and nothing else.
	"gpu": {"internal/dtype", "internal/golden", "internal/rng"},
	// Where stages' values are defined is below the stages.
	"internal": {"stages/port"},
	// Tests of whole runs start from the list of stages.
	"cache": {"internal/golden"},
}

func layerOf(dir string) int {
	for i, l := range layers {
		for _, folder := range l {
			if below(dir, folder) {
				return i
			}
		}
	}
	return -1
}

func TestImportsPointDown(t *testing.T) {
	for _, s := range sources(t) {
		if s.test || below(s.dir, "examples") {
			continue
		}
		for _, imp := range s.file.Imports {
			p, _ := strconv.Unquote(imp.Path.Value)
			to, ok := strings.CutPrefix(p, "longship/")
			if !ok {
				continue
			}
			top, _, _ := strings.Cut(s.dir, "/")
			if layerOf(to) > layerOf(s.dir) && !slices.ContainsFunc(exceptions[top], func(e string) bool { return below(to, e) }) {
				t.Errorf("%s imports %s, which is above it", s.name, to)
			}
			if below(s.dir, "gpu") && !below(s.dir, "gpu/cuda") && below(to, "pipeline") {
				t.Errorf("%s imports %s: the devices know nothing of pipelines", s.name, to)
			}
		}
	}
}

func TestCUStaysInItsPackage(t *testing.T) {
	for _, s := range sources(t) {
		for _, imp := range s.file.Imports {
			p, _ := strconv.Unquote(imp.Path.Value)
			if (p == "gorgonia.org/cu" || p == "C") && !below(s.dir, "gpu/cuda") {
				t.Errorf("%s imports %s; only gpu/cuda may", s.name, p)
			}
		}
	}
}

func TestPackagesSayWhatTheyAreFor(t *testing.T) {
	said := map[string]bool{}
	for _, s := range sources(t) {
		if s.test && s.dir != "internal/house" {
			continue
		}
		said[s.dir] = said[s.dir] || (s.file.Doc != nil && len(s.file.Doc.Text()) > 20)
	}
	for dir, ok := range said {
		if !ok {
			t.Errorf("package %s has no package comment", dir)
		}
	}
}

func TestOnlyTheCommandLinePrintsAndExits(t *testing.T) {
	for _, s := range sources(t) {
		if s.test || below(s.dir, "internal/cli") || s.file.Name.Name == "main" {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			sel, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			pkg, ok := sel.X.(*ast.Ident)
			if !ok || pkg.Obj != nil {
				return true
			}
			switch name := pkg.Name + "." + sel.Sel.Name; name {
			case "fmt.Print", "fmt.Println", "fmt.Printf", "os.Exit", "log.Fatal", "log.Fatalf", "log.Printf", "log.Println":
				t.Errorf("%s calls %s", s.name, name)
			}
			return true
		})
	}
}

func TestTopLevel(t *testing.T) {
	entries, err := os.ReadDir(root)
	require.NoError(t, err)
	allowed := []string{"stages", "pipeline", "cache", "gpu", "plugins", "examples", "internal", "main.go", "go.mod", "go.sum", "README.md", "LICENSE", "CONTRIBUTING.md"}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") && !slices.Contains(allowed, e.Name()) && e.Name() != "longship" && e.Name() != "output" {
			t.Errorf("%s does not belong into the top level", e.Name())
		}
	}
}
