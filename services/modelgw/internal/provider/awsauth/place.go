package awsauth

import (
	"net/url"
	"strings"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// Segment is a name as a part of a path. All that a path could read otherwise is escaped, as AWS wants it.
func Segment(name string) string { return strings.ReplaceAll(url.QueryEscape(name), "+", "%20") }

// domains are those of AWS's partitions whose domain is not amazonaws.com, by how the names of their regions begin.
var domains = map[string]string{"cn-": "amazonaws.com.cn", "eusc-": "amazonaws.eu"}

// Domain is the domain of a region, which the names of its services precede.
func Domain(region string) string {
	for prefix, domain := range domains {
		if strings.HasPrefix(region, prefix) {
			return region + "." + domain
		}
	}
	return region + ".amazonaws.com"
}

// Listed is an account as people see it: at its base URL, or at AWS's own address in its region. If it is not usable,
// the owner's hint says what to set.
func (o Owner) Listed(a *Account, baseURL string, vendor func(region string) string, usable bool) *modelv1.Account {
	info := &modelv1.Account{Name: o.Account, Usable: usable, BaseUrl: provider.ShownURL(baseURL)}
	if baseURL == "" && a.Region != "" {
		info.BaseUrl = vendor(a.Region)
	}
	if a.HasKey() {
		info.Keys = 1
	}
	if !usable {
		info.Problem = o.Hint
	}
	return info
}
