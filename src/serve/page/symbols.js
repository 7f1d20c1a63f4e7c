/* The names of LaTeX's mathematics that formula.js draws as one character or one word. */

const pairs = (text) => Object.fromEntries(text.trim().split(/\s+/).map((p) => p.split(":")));

/* Letters, drawn as identifiers. */
const LETTERS = pairs(`alpha:α beta:β gamma:γ delta:δ epsilon:ϵ varepsilon:ε zeta:ζ eta:η theta:θ vartheta:ϑ iota:ι kappa:κ lambda:λ mu:μ nu:ν
  xi:ξ omicron:ο pi:π varpi:ϖ rho:ρ varrho:ϱ sigma:σ varsigma:ς tau:τ upsilon:υ phi:ϕ varphi:φ chi:χ psi:ψ omega:ω Gamma:Γ Delta:Δ Theta:Θ
  Lambda:Λ Xi:Ξ Pi:Π Sigma:Σ Upsilon:Υ Phi:Φ Psi:Ψ Omega:Ω hbar:ℏ ell:ℓ Re:ℜ Im:ℑ wp:℘ aleph:ℵ beth:ℶ imath:ı jmath:ȷ infty:∞ partial:∂
  nabla:∇ emptyset:∅ varnothing:∅ top:⊤ bot:⊥ dots:… ldots:… dotsc:… cdots:⋯ dotsb:⋯ vdots:⋮ ddots:⋱ prime:′ degree:° angle:∠ triangle:△ square:□ blacksquare:■
  Box:□ checkmark:✓ star:⋆ hslash:ℏ eth:ð complement:∁ S:§ P:¶ pounds:£ euro:€ qedsymbol:∎`);

/* Operators, relations and arrows. */
const OPERATORS = pairs(`pm:± mp:∓ times:× div:÷ cdot:⋅ ast:∗ circ:∘ bullet:∙ oplus:⊕ ominus:⊖ otimes:⊗ oslash:⊘ odot:⊙ wedge:∧ land:∧ vee:∨ lor:∨
  cap:∩ cup:∪ setminus:∖ smallsetminus:∖ sqcap:⊓ sqcup:⊔ amalg:⨿ dagger:† ddagger:‡ wr:≀ lnot:¬ neg:¬ forall:∀ exists:∃ nexists:∄ le:≤ leq:≤ leqslant:⩽
  ge:≥ geq:≥ geqslant:⩾ ne:≠ neq:≠ ll:≪ gg:≫ equiv:≡ approx:≈ approxeq:≊ sim:∼ simeq:≃ cong:≅ propto:∝ asymp:≍ doteq:≐ triangleq:≜ coloneqq:≔ prec:≺ succ:≻ preceq:⪯ succeq:⪰
  in:∈ notin:∉ ni:∋ subset:⊂ supset:⊃ subseteq:⊆ supseteq:⊇ subsetneq:⊊ supsetneq:⊋ nsubseteq:⊈ sqsubseteq:⊑ sqsupseteq:⊒ mid:∣ nmid:∤ parallel:∥ nparallel:∦ perp:⊥ vdash:⊢
  dashv:⊣ models:⊨ vDash:⊨ bowtie:⋈ to:→ rightarrow:→ leftarrow:← gets:← leftrightarrow:↔ Rightarrow:⇒ Leftarrow:⇐ Leftrightarrow:⇔ implies:⟹ impliedby:⟸ iff:⟺ longrightarrow:⟶ longleftarrow:⟵
  Longrightarrow:⟹ Longleftarrow:⟸ longleftrightarrow:⟷ Longleftrightarrow:⟺ mapsto:↦ longmapsto:⟼ hookrightarrow:↪ hookleftarrow:↩ uparrow:↑ downarrow:↓ updownarrow:↕ Uparrow:⇑ Downarrow:⇓ nearrow:↗ searrow:↘
  swarrow:↙ nwarrow:↖ rightharpoonup:⇀ rightharpoondown:⇁ leftharpoonup:↼ rightleftharpoons:⇌ leadsto:⇝ rightsquigarrow:⇝ upharpoonright:↾ restriction:↾ therefore:∴ because:∵ colon:: vert:| lvert:| rvert:| Vert:‖ lVert:‖
  rVert:‖ lbrace:{ rbrace:} lbrack:[ rbrack:] langle:⟨ rangle:⟩ lfloor:⌊ rfloor:⌋ lceil:⌈ rceil:⌉ lgroup:⟮ rgroup:⟯ ulcorner:⌜ urcorner:⌝ backslash:\\ surd:√ lt:< gt:>`);

/* Large operators, with limits below and above in a displayed formula; integrals have them beside. */
const LARGE = pairs(`sum:∑ prod:∏ coprod:∐ bigcap:⋂ bigcup:⋃ bigsqcup:⨆ bigvee:⋁ bigwedge:⋀ bigoplus:⨁ bigotimes:⨂ bigodot:⨀ biguplus:⨄`);
const INTEGRALS = pairs(`int:∫ iint:∬ iiint:∭ oint:∮ oiint:∯`);

/* Functions: words; the second list takes limits. */
const FUNCTIONS = new Set(`sin cos tan cot sec csc sinh cosh tanh coth arcsin arccos arctan log ln lg exp dim ker deg arg hom`.split(" "));
const LIMITS = new Set(`lim limsup liminf max min sup inf det gcd Pr argmax argmin injlim projlim`.split(" "));

/* Marks above a base; those of the second list grow with it. */
const ACCENTS = { hat: "^", check: "ˇ", tilde: "~", acute: "´", grave: "`", dot: "˙", ddot: "¨", dddot: "⃛", breve: "˘", bar: "¯", vec: "→", mathring: "˚" };
const WIDE = { widehat: "^", widetilde: "~", overline: "‾", overrightarrow: "→", overleftarrow: "←", overleftrightarrow: "↔", overbrace: "⏞" };
const BELOW = { underline: "_", underbrace: "⏟", underrightarrow: "→" };

/* Widths of blanks in em. */
const SPACES = { ",": 0.167, thinspace: 0.167, ":": 0.222, ">": 0.222, medspace: 0.222, ";": 0.278, thickspace: 0.278, "!": -0.167, negthinspace: -0.167,
  " ": 0.25, "\n": 0.25, enspace: 0.5, quad: 1, qquad: 2, hspace: 0.5, space: 0.25 };

/* Alphabets: the code points of A, a and 0; letters that stand elsewhere. */
const ALPHABETS = {
  mathbf: [0x1d400, 0x1d41a, 0x1d7ce], boldsymbol: [0x1d468, 0x1d482, 0x1d7ce], bm: [0x1d468, 0x1d482, 0x1d7ce], mathsf: [0x1d5a0, 0x1d5ba, 0x1d7e2],
  mathtt: [0x1d670, 0x1d68a, 0x1d7f6], mathbb: [0x1d538, 0x1d552, 0x1d7d8, "CℂHℍNℕPℙQℚRℝZℤ"], mathcal: [0x1d49c, 0x1d4b6, 0, "BℬEℰFℱHℋIℐLℒMℳRℛeℯgℊoℴ"],
  mathscr: [0x1d49c, 0x1d4b6, 0, "BℬEℰFℱHℋIℐLℒMℳRℛeℯgℊoℴ"], mathfrak: [0x1d504, 0x1d51e, 0, "CℭHℌIℑRℜZℨ"],
};
function inAlphabet(c, name) {
  const a = ALPHABETS[name];
  if (!a || c.length !== 1) return c;
  const other = a[3] ? [...a[3]].indexOf(c) : -1;
  if (other >= 0 && other % 2 === 0) return [...a[3]][other + 1];
  const at = c >= "A" && c <= "Z" ? a[0] + c.charCodeAt(0) - 65 : c >= "a" && c <= "z" ? a[1] + c.charCodeAt(0) - 97 : c >= "0" && c <= "9" && a[2] ? a[2] + c.charCodeAt(0) - 48 : 0;
  return at ? String.fromCodePoint(at) : c;
}
