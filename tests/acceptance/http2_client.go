// Go's net/http with HTTP/2: requests the URLs of standard input one by one, and writes each answer as a JSON line. (With
// several at a time it opens connections that it does not use, which the proxy counts.)
//
//	http2_client PROXY CERTIFICATES
//
// Redirects are not followed. A URL that Go would write in another way is left out, and so are hosts that it cannot name in
// TLS: IPv6 addresses, and names with a trailing dot.
package main

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

type answer struct {
	URL     string              `json:"url"`
	Status  int                 `json:"status"`
	Headers map[string][]string `json:"headers"`
	// encoding/json writes bytes as base64.
	Body    []byte `json:"body"`
	Error   string `json:"error"`
	Version string `json:"version"`
}

func ask(client *http.Client, address string) answer {
	found := answer{URL: address, Headers: map[string][]string{}, Body: []byte{}}
	response, err := client.Get(address)
	if err != nil {
		found.Error = err.Error()
		return found
	}
	defer response.Body.Close()
	for name, values := range response.Header {
		found.Headers[strings.ToLower(name)] = values
	}
	found.Status, found.Version = response.StatusCode, response.Proto
	body, err := io.ReadAll(response.Body)
	found.Body = body
	if err != nil {
		found.Error = err.Error()
	}
	return found
}

func sentUnchanged(address string) bool {
	parsed, err := url.Parse(address)
	return err == nil && parsed.String() == address && !strings.Contains(address, "[") &&
		!strings.HasSuffix(parsed.Hostname(), ".")
}

func newClient(proxy string, certificates string) *http.Client {
	parsed, err := url.Parse(proxy)
	if err != nil {
		panic(err)
	}
	pem, err := os.ReadFile(certificates)
	if err != nil {
		panic(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	transport := &http.Transport{
		Proxy:              http.ProxyURL(parsed),
		TLSClientConfig:    &tls.Config{RootCAs: roots},
		ForceAttemptHTTP2:  true,
		DisableCompression: true,
	}
	return &http.Client{
		Transport:     transport,
		Timeout:       60 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func main() {
	client := newClient(os.Args[1], os.Args[2])
	lines, output := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	for lines.Scan() {
		if !sentUnchanged(lines.Text()) {
			continue
		}
		if err := output.Encode(ask(client, lines.Text())); err != nil {
			panic(err)
		}
	}
}
