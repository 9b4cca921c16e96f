package report
import ("testing";"time";"bytes";"runtime"
"github.com/tidemark-lab/tidemark/instrument")
func TestZZBig(t *testing.T){
 m:=newMachine(t,instrument.Options{},0)
 if err:=m.train(60,200,256);err!=nil{t.Fatal(err)}
 p:=pageOf("big",Observed,nil,m)
 for _,n:=range []int{0,1<<30}{ p.MaxEvents=n
 var o bytes.Buffer; s:=time.Now()
 if err:=p.WriteHTML(&o);err!=nil{t.Fatal(err)}
 var ms runtime.MemStats; runtime.ReadMemStats(&ms)
 t.Log(m.rec.Recorded(), o.Len()>>20, "MiB", time.Since(s), ms.Sys>>20)
 ctx:=startBrowser(t)
 s=time.Now(); b:=openPage(t,ctx,p,1440,1000); t.Log("open",time.Since(s)); b.picture("big")
 s=time.Now(); b.press(0,"+"); b.at(0); t.Log("zoom",time.Since(s))
 for i:=0;i<8;i++{b.press(0,"+")}
 s=time.Now(); b.press(0,"ArrowRight"); b.alive(); t.Log("move",time.Since(s))
 b.picture("bigzoom")
 }}
