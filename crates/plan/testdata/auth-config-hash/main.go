// Prints vectors.json: `go run main.go > vectors.json`. The structures have the fields, in the order and with the tags, that
// the contract of NebariApp gives to status.authConfigHash; encoding/json does the rest.
package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"sort"
)

type spa struct {
	Enabled  bool   `json:"enabled,omitempty"`
	ClientID string `json:"clientId,omitempty"`
}

type group struct {
	Name    string   `json:"name"`
	Members []string `json:"members,omitempty"`
}

type mapper struct {
	Name   string            `json:"name"`
	Mapper string            `json:"protocolMapper"`
	Config map[string]string `json:"config,omitempty"`
}

type keycloak struct {
	Groups  []group  `json:"groups,omitempty"`
	Mappers []mapper `json:"protocolMappers,omitempty"`
}

type state struct {
	Namespace   string    `json:"namespace"`
	Name        string    `json:"name"`
	Hostname    string    `json:"hostname"`
	Provider    string    `json:"provider"`
	RedirectURI string    `json:"redirectURI"`
	IssuerURL   string    `json:"issuerURL"`
	Scopes      []string  `json:"scopes"`
	Groups      []string  `json:"groups"`
	SPA         *spa      `json:"spaClient,omitempty"`
	Keycloak    *keycloak `json:"keycloakConfig,omitempty"`
}

type auth struct {
	Enabled         bool      `json:"enabled"`
	Provider        string    `json:"provider"`
	RedirectURI     string    `json:"redirectURI,omitempty"`
	ClientSecretRef string    `json:"clientSecretRef,omitempty"`
	IssuerURL       string    `json:"issuerURL,omitempty"`
	Scopes          []string  `json:"scopes,omitempty"`
	Groups          []string  `json:"groups,omitempty"`
	SPA             *spa      `json:"spaClient,omitempty"`
	Device          *spa      `json:"deviceFlowClient,omitempty"`
	Exchange        *spa      `json:"tokenExchange,omitempty"`
	Keycloak        *keycloak `json:"keycloakConfig,omitempty"`
}

type vector struct {
	What string `json:"what"`
	Hash string `json:"hash"`
	App  any    `json:"app"`
}

func hash(namespace, name, hostname string, a auth) string {
	s := state{namespace, name, hostname, a.Provider, a.RedirectURI, a.IssuerURL,
		append([]string(nil), a.Scopes...), append([]string(nil), a.Groups...), a.SPA, a.Keycloak}
	sort.Strings(s.Scopes)
	sort.Strings(s.Groups)
	data, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func main() {
	k := "keycloak"
	cases := []struct {
		what, namespace, name, hostname string
		auth                            auth
	}{
		{"the least", "shop", "web", "web.example.com", auth{Provider: k}},
		{"another namespace", "shop2", "web", "web.example.com", auth{Provider: k}},
		{"another name", "shop", "web2", "web.example.com", auth{Provider: k}},
		{"another host name", "shop", "web", "www.example.com", auth{Provider: k}},
		{"generic-oidc with an issuer", "shop", "web", "web.example.com", auth{Provider: "generic-oidc", IssuerURL: "https://id.example.com/a?b=c&d=<e>"}},
		{"a redirect path", "shop", "web", "web.example.com", auth{Provider: k, RedirectURI: "/cb?x=1&y=<2>"}},
		{"scopes are sorted", "shop", "web", "web.example.com", auth{Provider: k, Scopes: []string{"profile", "openid", "email", "Groups"}}},
		{"groups are sorted by bytes", "shop", "web", "web.example.com", auth{Provider: k, Groups: []string{"ä", "z", "Z", "a/b"}}},
		{"an empty single-page client", "shop", "web", "web.example.com", auth{Provider: k, SPA: &spa{}}},
		{"a single-page client", "shop", "web", "web.example.com", auth{Provider: k, SPA: &spa{Enabled: true}}},
		{"a single-page client by name", "shop", "web", "web.example.com", auth{Provider: k, SPA: &spa{Enabled: true, ClientID: "front<end>"}}},
		{"a single-page client by name, off", "shop", "web", "web.example.com", auth{Provider: k, SPA: &spa{ClientID: "x"}}},
		{"an empty keycloakConfig", "shop", "web", "web.example.com", auth{Provider: k, Keycloak: &keycloak{}}},
		{"groups with and without members, in their order", "shop", "web", "web.example.com", auth{Provider: k, Keycloak: &keycloak{Groups: []group{{"b", []string{"jo", "al"}}, {"a", nil}}}}},
		{"mappers, keys sorted", "shop", "web", "web.example.com", auth{Provider: k, Keycloak: &keycloak{Mappers: []mapper{{"m", "oidc-audience-mapper", map[string]string{"z": "1", "a": "<&>", "B": "\u2028\u2029"}}, {"n", "x", nil}}}}},
		{"control characters and quotes", "shop", "web", "web.example.com", auth{Provider: k, Scopes: []string{"a\"b\\c/d", "\b\f\n\r\t\x01\x1f\x7f", "日本\U0001F600"}}},
		{"clients of the device flow, exchange and Secrets are not in it", "shop", "web", "web.example.com", auth{Provider: k, ClientSecretRef: "other", Device: &spa{Enabled: true}, Exchange: &spa{Enabled: true}}},
		{"everything", "team-a", "hub", "hub.team-a.example.com", auth{Provider: k, RedirectURI: "/hub/oauth_callback", Scopes: []string{"openid", "profile", "email", "groups"}, Groups: []string{"admin", "users"}, SPA: &spa{true, "hub-front"}, Keycloak: &keycloak{[]group{{"admin", []string{"root@example.com"}}}, []mapper{{"group-membership", "oidc-group-membership-mapper", map[string]string{"claim.name": "groups", "full.path": "true"}}}}}},
	}
	var vectors []vector
	for _, c := range cases {
		c.auth.Enabled = true
		vectors = append(vectors, vector{c.what, hash(c.namespace, c.name, c.hostname, c.auth), map[string]any{
			"apiVersion": "reconcilers.nebari.dev/v1", "kind": "NebariApp",
			"metadata": map[string]any{"name": c.name, "namespace": c.namespace},
			"spec": map[string]any{"hostname": c.hostname, "service": map[string]any{"name": "web", "port": 80}, "auth": c.auth},
		}})
	}
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", " ")
	if err := out.Encode(vectors); err != nil {
		panic(err)
	}
}
