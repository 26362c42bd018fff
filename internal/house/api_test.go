package house

import (
	"go/ast"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// public are the folders whose packages are for other modules too. Ops and
// kernels are not: they are added to here.
var public = []string{"pipeline", "cache", "stages", "plugins", "gpu/tensor", "gpu/memory", "gpu/cpu"}

// TestPublicSignaturesNameNothingInternal: whoever imports a package from
// another module must be able to name every type that its API mentions.
func TestPublicSignaturesNameNothingInternal(t *testing.T) {
	for _, s := range sources(t) {
		if s.test || s.dir != "gpu" && !slices.ContainsFunc(public, func(folder string) bool { return below(s.dir, folder) }) {
			continue
		}
		inside := map[string]string{} // import paths by the name in the file
		for _, imp := range s.file.Imports {
			p, _ := strconv.Unquote(imp.Path.Value)
			if !strings.HasPrefix(p, "longship/internal/") {
				continue
			}
			name := p[strings.LastIndexByte(p, '/')+1:]
			if imp.Name != nil {
				name = imp.Name.Name
			}
			inside[name] = p
		}
		for _, decl := range s.file.Decls {
			for name, part := range exposed(decl) {
				ast.Inspect(part, func(n ast.Node) bool {
					sel, ok := n.(*ast.SelectorExpr)
					if !ok {
						return true
					}
					if pkg, ok := sel.X.(*ast.Ident); ok && inside[pkg.Name] != "" {
						t.Errorf("%s: %s exposes %s.%s of %s", s.name, name, pkg.Name, sel.Sel.Name, inside[pkg.Name])
					}
					return true
				})
			}
		}
	}
}

// exposed returns the parts of a declaration that those who import the package
// see, by what they are: signatures, types of fields, values of variables that
// say no type.
func exposed(decl ast.Decl) map[string]ast.Node {
	parts := map[string]ast.Node{}
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Name.IsExported() && (d.Recv == nil || ast.IsExported(receiver(d.Recv.List[0].Type))) {
			parts[d.Name.Name] = d.Type
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch sp := spec.(type) {
			case *ast.TypeSpec:
				if !sp.Name.IsExported() {
					break
				}
				st, ok := sp.Type.(*ast.StructType)
				if !ok {
					parts[sp.Name.Name] = sp.Type
					break
				}
				for i, f := range st.Fields.List {
					switch {
					case len(f.Names) == 0: // embedded: its methods are seen whatever its name
						parts[sp.Name.Name+", embedded "+strconv.Itoa(i)] = f.Type
					case f.Names[0].IsExported():
						parts[sp.Name.Name+"."+f.Names[0].Name] = f.Type
					}
				}
			case *ast.ValueSpec:
				for i, name := range sp.Names {
					switch {
					case !name.IsExported():
					case sp.Type != nil:
						parts[name.Name] = sp.Type
					case i < len(sp.Values):
						parts[name.Name] = sp.Values[i]
					}
				}
			}
		}
	}
	return parts
}

// receiver returns the name of a receiver's type.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}
