package awsauth

import (
	"net/url"
	"strings"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// Segment is a name as a part of a path. All that a path could read otherwise is escaped, as AWS wants it.
func Segment(name string) string { return strings.ReplaceAll(url.QueryEscape(name), "+", "%20") }

// Listed is an account as people see it: at its base URL, or at AWS's own address in its region. If it is not usable,
// the owner's hint says what to set.
func (o Owner) Listed(a *Account, baseURL string, vendor func(region string) string, usable bool) *modelv1.Account {
	info := &modelv1.Account{Name: o.Account, Usable: usable, BaseUrl: provider.ShownURL(baseURL)}
	if baseURL == "" && a.Region != "" {
		info.BaseUrl = vendor(a.Region)
	}
	if !usable {
		info.Problem = o.Hint
	}
	return info
}
