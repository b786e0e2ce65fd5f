// Renders the Helm chart where Helm is not installed: the templates of a chart with Go's text/template and sprig, which is
// what Helm uses, and the functions that Helm adds, as far as the chart uses them.
//
//	go run render.go CHART RELEASE NAMESPACE [VALUES.yaml ...]
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig"
	"github.com/ghodss/yaml"
)

type values = map[string]interface{}

func read(path string) values {
	text, err := os.ReadFile(path)
	if err != nil {
		log.Fatal(err)
	}
	result := values{}
	if err := yaml.Unmarshal(text, &result); err != nil {
		log.Fatalf("%s: %v", path, err)
	}
	return result
}

func merge(into, from values) {
	for key, value := range from {
		inner, isMap := value.(values)
		if outer, ok := into[key].(values); ok && isMap {
			merge(outer, inner)
		} else {
			into[key] = value
		}
	}
}

func functions(root *template.Template) template.FuncMap {
	functions := sprig.TxtFuncMap()
	functions["include"] = func(name string, data interface{}) (string, error) {
		var text strings.Builder
		err := root.ExecuteTemplate(&text, name, data)
		return text.String(), err
	}
	functions["required"] = func(message string, value interface{}) (interface{}, error) {
		if value == nil || value == "" {
			return nil, fmt.Errorf("%s", message)
		}
		return value, nil
	}
	functions["toYaml"] = func(value interface{}) (string, error) {
		text, err := yaml.Marshal(value)
		return strings.TrimSuffix(string(text), "\n"), err
	}
	functions["toJson"] = func(value interface{}) (string, error) {
		text, err := json.Marshal(value)
		return string(text), err
	}
	functions["fromYaml"] = func(text string) (values, error) {
		result := values{}
		return result, yaml.Unmarshal([]byte(text), &result)
	}
	return functions
}

func main() {
	log.SetFlags(0)
	if len(os.Args) < 4 {
		log.Fatal("usage: render CHART RELEASE NAMESPACE [VALUES.yaml ...]")
	}
	chart, release, namespace := os.Args[1], os.Args[2], os.Args[3]
	all := read(filepath.Join(chart, "values.yaml"))
	for _, path := range os.Args[4:] {
		merge(all, read(path))
	}
	meta := read(filepath.Join(chart, "Chart.yaml"))
	data := values{
		"Values":  all,
		"Release": values{"Name": release, "Namespace": namespace, "Service": "Helm"},
		"Chart":   values{"Name": meta["name"], "Version": meta["version"], "AppVersion": meta["appVersion"]},
	}
	// Helm names a template by its path, beginning with the chart's name.
	base := fmt.Sprintf("%v/templates", meta["name"])
	data["Template"] = values{"BasePath": base}
	root := template.New("chart").Option("missingkey=zero")
	root.Funcs(functions(root))
	paths, _ := filepath.Glob(filepath.Join(chart, "templates", "*"))
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			log.Fatal(err)
		}
		if _, err := root.New(base + "/" + filepath.Base(path)).Parse(string(text)); err != nil {
			log.Fatal(err)
		}
	}
	for _, path := range paths {
		name := base + "/" + filepath.Base(path)
		var text strings.Builder
		if err := root.ExecuteTemplate(&text, name, data); err != nil {
			log.Fatal(err)
		}
		if strings.HasSuffix(name, ".yaml") && strings.TrimSpace(text.String()) != "" {
			fmt.Printf("---\n%s\n", strings.ReplaceAll(text.String(), "<no value>", ""))
		}
	}
}
