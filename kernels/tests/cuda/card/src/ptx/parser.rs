//! The grammar of PTX, as far as compilers write it.

use std::collections::HashMap;

use super::lexer::{Lexer, Token};
use super::{Base, Function, Instruction, Module, Operand, Space, Statement, Ty, Variable};

type Fallible<T> = Result<T, String>;

#[derive(Clone)]
enum Name {
    Register(u32),
    /// `%r<10>`: first register, how many.
    Registers(u32, u32),
    Variable(usize),
}

struct Parser<'a> {
    lexer: Lexer<'a>,
    token: Token<'a>,
    line: u32,
    module: Module,
    // The names of the function that is read.
    names: Vec<HashMap<&'a str, Name>>,
    scopes: Vec<u32>,
    scope_count: u32,
}

pub fn parse(text: &str) -> Fallible<Module> {
    let mut parser = Parser {
        lexer: Lexer::new(text),
        token: Token::End,
        line: 1,
        module: Module::default(),
        names: Vec::new(),
        scopes: Vec::new(),
        scope_count: 0,
    };
    parser.advance()?;
    parser.module()?;
    Ok(parser.module)
}

fn special(word: &str) -> bool {
    let head = word.split('.').next().unwrap_or(word);
    matches!(
        head,
        "%tid"
            | "%ntid"
            | "%ctaid"
            | "%nctaid"
            | "%laneid"
            | "%warpid"
            | "%nwarpid"
            | "%smid"
            | "%nsmid"
            | "%gridid"
            | "%clock"
            | "%clock64"
            | "%clock_hi"
            | "%globaltimer"
            | "%globaltimer_lo"
            | "%globaltimer_hi"
            | "%lanemask_eq"
            | "%lanemask_lt"
            | "%lanemask_le"
            | "%lanemask_gt"
            | "%lanemask_ge"
            | "%clusterid"
            | "%nclusterid"
            | "%cluster_ctaid"
            | "%cluster_nctaid"
            | "%cluster_ctarank"
            | "%cluster_nctarank"
            | "%is_explicit_cluster"
            | "%dynamic_smem_size"
            | "%total_smem_size"
            | "%aggr_smem_size"
            | "%reserved_smem_offset_begin"
            | "%reserved_smem_offset_end"
    )
}

impl<'a> Parser<'a> {
    fn wrong<T>(&self, what: impl std::fmt::Display) -> Fallible<T> {
        Err(format!("PTX line {}: {what}, found {:?}", self.line, self.token))
    }

    fn advance(&mut self) -> Fallible<Token<'a>> {
        let before = self.token;
        self.token = self.lexer.next()?;
        self.line = self.lexer.line;
        Ok(before)
    }

    fn is(&self, sign: u8) -> bool {
        self.token == Token::Sign(sign)
    }

    fn accept(&mut self, sign: u8) -> Fallible<bool> {
        let found = self.is(sign);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    fn expect(&mut self, sign: u8) -> Fallible<()> {
        if self.accept(sign)? {
            Ok(())
        } else {
            self.wrong(format_args!("expected {:?}", sign as char))
        }
    }

    fn word(&mut self) -> Fallible<&'a str> {
        match self.advance()? {
            Token::Word(word) => Ok(word),
            _ => self.wrong("expected a name"),
        }
    }

    fn integer(&mut self) -> Fallible<i128> {
        let minus = self.accept(b'-')?;
        match self.advance()? {
            Token::Integer(value) => Ok(if minus { -value } else { value }),
            _ => self.wrong("expected an integer"),
        }
    }

    fn skip_until(&mut self, sign: u8) -> Fallible<()> {
        while !self.accept(sign)? {
            if self.advance()? == Token::End {
                return self.wrong("unexpected end");
            }
        }
        Ok(())
    }

    fn rest_of_line(&mut self) -> Fallible<()> {
        let line = self.line;
        while self.line == line && self.token != Token::End {
            self.advance()?;
        }
        Ok(())
    }

    fn module(&mut self) -> Fallible<()> {
        loop {
            match self.token {
                Token::End => return Ok(()),
                Token::Word(".version") => {
                    self.advance()?;
                    if let Token::Double(bits) = self.advance()? {
                        self.module.version = format!("{:.1}", f64::from_bits(bits));
                    }
                }
                Token::Word(".target") => {
                    self.advance()?;
                    self.module.target = self.word()?.to_string();
                    while self.accept(b',')? {
                        self.word()?;
                    }
                }
                Token::Word(".address_size") => {
                    self.advance()?;
                    if self.integer()? != 64 {
                        return self.wrong("only addresses of 64 bits");
                    }
                }
                Token::Word(".file") => self.rest_of_line()?,
                Token::Word(".section") => {
                    self.skip_until(b'{')?;
                    self.skip_until(b'}')?;
                }
                Token::Word(".visible" | ".weak" | ".common") => {
                    self.advance()?;
                }
                Token::Word(".extern") => {
                    self.advance()?;
                    match self.token {
                        Token::Word(".func" | ".entry") => self.function()?,
                        _ => self.module_variables(true)?,
                    }
                }
                Token::Word(".func" | ".entry") => self.function()?,
                Token::Word(".global" | ".const" | ".shared") => self.module_variables(false)?,
                Token::Word(".alias" | ".pragma") => self.skip_until(b';')?,
                Token::Sign(b';') => {
                    self.advance()?;
                }
                _ => return self.wrong("not a directive of a module"),
            }
        }
    }

    fn module_variables(&mut self, is_extern: bool) -> Fallible<()> {
        loop {
            let mut variable = self.variable()?;
            variable.is_extern = is_extern;
            self.module.variables.push(variable);
            if !self.accept(b',')? {
                return self.expect(b';');
            }
        }
    }

    /// From the space on: `.shared .align 16 .b8 name[10] = {...}`.
    fn variable(&mut self) -> Fallible<Variable> {
        let space = match self.word()? {
            ".global" => Space::Global,
            ".const" => Space::Const,
            ".shared" => Space::Shared,
            ".local" => Space::Local,
            ".param" => Space::Param,
            _ => return self.wrong("not a space of memory"),
        };
        let mut align = None;
        let mut element = None;
        let mut vector = 1;
        let name = loop {
            match self.word()? {
                ".align" => align = Some(self.integer()? as usize),
                ".ptr" | ".attribute" => {}
                ".global" | ".const" | ".shared" | ".local" | ".param" if element.is_some() => {}
                ".v2" => vector = 2,
                ".v4" => vector = 4,
                word => match word.strip_prefix('.') {
                    Some(".managed") | Some("managed") => {}
                    Some(ty) => match Ty::named(ty) {
                        Some(ty) => element = Some(ty),
                        None if matches!(ty, "texref" | "samplerref" | "surfref") => {
                            element = Some(Ty::B64)
                        }
                        None => return self.wrong(format_args!("not a type: {ty}")),
                    },
                    None => break word,
                },
            }
        };
        let Some(element) = element else { return self.wrong("a variable without a type") };
        let mut count = vector;
        let mut is_open = false;
        while self.accept(b'[')? {
            if self.is(b']') {
                is_open = true;
            } else {
                count *= self.integer()? as usize;
            }
            self.expect(b']')?;
        }
        let mut variable = Variable {
            space,
            name: name.to_string(),
            align: align.unwrap_or(element.bytes() * vector),
            bytes: if is_open { 0 } else { count * element.bytes() },
            init: Vec::new(),
            addresses: Vec::new(),
            is_extern: false,
        };
        if self.accept(b'=')? {
            self.initial(element, &mut variable)?;
            if is_open {
                variable.bytes = variable.init.len();
            }
        }
        Ok(variable)
    }

    fn initial(&mut self, element: Ty, variable: &mut Variable) -> Fallible<()> {
        if self.accept(b'{')? {
            while !self.accept(b'}')? {
                self.initial(element, variable)?;
                self.accept(b',')?;
            }
            return Ok(());
        }
        let bytes = element.bytes();
        let minus = self.accept(b'-')?;
        match self.advance()? {
            Token::Integer(value) => {
                let value = if minus { -value } else { value };
                let value = match element {
                    Ty::F32 => (value as f32).to_bits() as i128,
                    Ty::F64 => (value as f64).to_bits() as i128,
                    _ => value,
                };
                variable.init.extend(&value.to_le_bytes()[..bytes]);
            }
            Token::Single(bits) => variable.init.extend(&bits.to_le_bytes()[..bytes.min(4)]),
            Token::Double(bits) => variable.init.extend(&bits.to_le_bytes()[..bytes]),
            Token::Word(mut symbol) => {
                if symbol == "generic" {
                    self.expect(b'(')?;
                    symbol = self.word()?;
                    self.expect(b')')?;
                }
                let mut offset = 0;
                if self.accept(b'+')? {
                    offset = self.integer()? as i64;
                }
                variable.addresses.push((variable.init.len(), symbol.to_string(), offset));
                variable.init.extend(&[0; 8][..bytes]);
            }
            _ => return self.wrong("not a value of a variable"),
        }
        Ok(())
    }

    fn parameters(&mut self, function: &mut Function) -> Fallible<Vec<usize>> {
        let mut found = Vec::new();
        if !self.accept(b'(')? {
            return Ok(found);
        }
        while !self.accept(b')')? {
            if self.token == Token::Word(".reg") {
                return self.wrong("parameters in registers are not read");
            }
            let name = match self.token {
                Token::Word(word) => word,
                _ => "",
            };
            if name != ".param" {
                return self.wrong("expected .param");
            }
            let variable = self.variable()?;
            let name = self.leak_name(&variable.name);
            found.push(function.variables.len());
            self.names.last_mut().unwrap().insert(name, Name::Variable(function.variables.len()));
            function.variables.push(variable);
            self.accept(b',')?;
        }
        Ok(found)
    }

    /// The name as a part of the text that is parsed.
    fn leak_name(&self, name: &str) -> &'a str {
        self.lexer.find(name)
    }

    fn function(&mut self) -> Fallible<()> {
        let is_entry = self.word()? == ".entry";
        let mut function = Function { is_entry, ..Function::default() };
        self.names = vec![HashMap::new()];
        self.scopes = vec![0];
        self.scope_count = 1;
        while let Token::Word(".attribute") = self.token {
            self.skip_until(b')')?;
        }
        if !is_entry && self.is(b'(') {
            function.results = self.parameters(&mut function)?;
        }
        function.name = self.word()?.to_string();
        function.parameters = self.parameters(&mut function)?;
        loop {
            match self.token {
                Token::Sign(b';') => {
                    self.advance()?;
                    break;
                }
                Token::Sign(b'{') => {
                    let mut body = Vec::new();
                    self.advance()?;
                    self.block(&mut function, &mut body)?;
                    function.body = Some(body);
                    break;
                }
                Token::Word(".maxntid") => {
                    self.advance()?;
                    function.most_threads = Some(self.three()?.iter().product());
                }
                Token::Word(".reqntid") => {
                    self.advance()?;
                    function.required_threads = Some(self.three()?);
                }
                Token::Word(".reqnctapercluster") => {
                    self.advance()?;
                    function.cluster = Some(self.three()?);
                }
                Token::Word(".minnctapersm" | ".maxnreg" | ".maxnctapersm" | ".maxclusterrank") => {
                    self.advance()?;
                    self.integer()?;
                }
                Token::Word(".noreturn" | ".explicitcluster" | ".blocksareclusters") => {
                    self.advance()?;
                }
                Token::Word(".pragma") => self.skip_until(b';')?,
                _ => return self.wrong("not a directive of a function"),
            }
        }
        self.module.functions.push(function);
        Ok(())
    }

    fn three(&mut self) -> Fallible<[u32; 3]> {
        let mut found = [self.integer()? as u32, 1, 1];
        for place in &mut found[1..] {
            if self.accept(b',')? {
                *place = self.integer()? as u32;
            }
        }
        Ok(found)
    }

    fn block(&mut self, function: &mut Function, body: &mut Vec<Statement>) -> Fallible<()> {
        loop {
            match self.token {
                Token::Sign(b'}') => {
                    self.advance()?;
                    return Ok(());
                }
                Token::Sign(b'{') => {
                    self.advance()?;
                    self.names.push(HashMap::new());
                    self.scopes.push(self.scope_count);
                    self.scope_count += 1;
                    self.block(function, body)?;
                    self.scopes.pop();
                    self.names.pop();
                }
                Token::Sign(b';') => {
                    self.advance()?;
                }
                Token::Sign(b'@') => {
                    self.advance()?;
                    let negated = self.accept(b'!')?;
                    let name = self.word()?;
                    let Some(Name::Register(register)) = self.lookup(name) else {
                        return self.wrong(format_args!("no predicate {name}"));
                    };
                    let word = self.word()?;
                    self.instruction(word, Some((register, negated)), body)?;
                }
                Token::Word(".loc") => self.rest_of_line()?,
                Token::Word(".pragma") => self.skip_until(b';')?,
                Token::Word(".reg") => self.registers(function)?,
                Token::Word(".local" | ".shared" | ".param" | ".const" | ".global") => {
                    loop {
                        let variable = self.variable()?;
                        let name = self.leak_name(&variable.name);
                        self.names
                            .last_mut()
                            .unwrap()
                            .insert(name, Name::Variable(function.variables.len()));
                        function.variables.push(variable);
                        if !self.accept(b',')? {
                            break;
                        }
                    }
                    self.expect(b';')?;
                }
                Token::Word(".branchtargets" | ".callprototype") => self.skip_until(b';')?,
                Token::Word(word) => {
                    self.advance()?;
                    if !word.starts_with('.') && self.accept(b':')? {
                        if self.token == Token::Word(".branchtargets") {
                            self.advance()?;
                            let mut targets = vec![self.word()?.to_string()];
                            while self.accept(b',')? {
                                targets.push(self.word()?.to_string());
                            }
                            self.expect(b';')?;
                            body.push(Statement::Targets(word.to_string(), targets));
                        } else if self.token == Token::Word(".callprototype") {
                            self.skip_until(b';')?;
                        } else {
                            let scope = *self.scopes.last().unwrap();
                            function.labels.insert((scope, word.to_string()), body.len());
                            body.push(Statement::Label);
                        }
                    } else {
                        self.instruction(word, None, body)?;
                    }
                }
                _ => return self.wrong("not a statement"),
            }
        }
    }

    fn registers(&mut self, function: &mut Function) -> Fallible<()> {
        self.advance()?;
        let mut ty = None;
        loop {
            let word = self.word()?;
            if let Some(text) = word.strip_prefix('.') {
                ty = Ty::named(text);
                if ty.is_none() {
                    return self.wrong(format_args!("not a type of a register: {text}"));
                }
                continue;
            }
            let Some(ty) = ty else { return self.wrong("a register without a type") };
            let first = function.registers.len() as u32;
            let mut count = 1;
            let name = if self.accept(b'<')? {
                count = self.integer()? as u32;
                self.expect(b'>')?;
                Name::Registers(first, count)
            } else {
                Name::Register(first)
            };
            for index in 0..count {
                function.registers.push(ty);
                function.register_names.push(match name {
                    Name::Registers(..) => format!("{word}{index}"),
                    _ => word.to_string(),
                });
            }
            self.names.last_mut().unwrap().insert(word, name);
            if !self.accept(b',')? {
                return self.expect(b';');
            }
        }
    }

    fn lookup(&self, word: &str) -> Option<Name> {
        for scope in self.names.iter().rev() {
            if let Some(found) = scope.get(word) {
                return Some(found.clone());
            }
        }
        let digits =
            word.len() - word.trim_end_matches(|letter: char| letter.is_ascii_digit()).len();
        // The longest name first: `%r1<3>` is one of `%r1`.
        for split in word.len() - digits..word.len() {
            let (name, number) = word.split_at(split);
            let Ok(number) = number.parse::<u32>() else { continue };
            for scope in self.names.iter().rev() {
                if let Some(Name::Registers(first, count)) = scope.get(name)
                    && number < *count
                {
                    return Some(Name::Register(first + number));
                }
            }
        }
        None
    }

    fn instruction(
        &mut self,
        word: &str,
        guard: Option<(u32, bool)>,
        body: &mut Vec<Statement>,
    ) -> Fallible<()> {
        let line = self.line;
        let name: Vec<String> = word.split('.').map(str::to_string).collect();
        if word.starts_with('.') {
            return self.wrong(format_args!("a directive that is not known: {word}"));
        }
        let jumps = matches!(name[0].as_str(), "bra" | "brx");
        let mut operands = Vec::new();
        while !self.accept(b';')? {
            operands.push(self.operand(jumps)?);
            if !self.accept(b',')? && !self.is(b';') {
                return self.wrong("expected , or ;");
            }
        }
        body.push(Statement::Instruction(Instruction {
            guard,
            name,
            operands,
            line,
            scopes: self.scopes.clone(),
        }));
        Ok(())
    }

    fn operand(&mut self, jumps: bool) -> Fallible<Operand> {
        let first = self.simple(jumps)?;
        if self.accept(b'|')? {
            let second = self.simple(jumps)?;
            return Ok(Operand::Both(Box::new(first), Box::new(second)));
        }
        Ok(first)
    }

    fn simple(&mut self, jumps: bool) -> Fallible<Operand> {
        Ok(match self.token {
            Token::Sign(b'{') => {
                self.advance()?;
                let mut found = Vec::new();
                while !self.accept(b'}')? {
                    found.push(self.operand(false)?);
                    self.accept(b',')?;
                }
                Operand::Vector(found)
            }
            Token::Sign(b'(') => {
                self.advance()?;
                let mut found = Vec::new();
                while !self.accept(b')')? {
                    found.push(self.operand(false)?);
                    self.accept(b',')?;
                }
                Operand::List(found)
            }
            Token::Sign(b'[') => {
                self.advance()?;
                let base = self.operand(false)?;
                if self.accept(b',')? {
                    let coordinates = match self.operand(false)? {
                        Operand::Vector(found) => found,
                        one => vec![one],
                    };
                    self.expect(b']')?;
                    return Ok(Operand::Tensor(Box::new(base), coordinates));
                }
                let mut offset = 0;
                if self.is(b'+') || self.is(b'-') {
                    let minus = self.advance()? == Token::Sign(b'-');
                    offset = self.integer()? as i64;
                    if minus {
                        offset = -offset;
                    }
                }
                self.expect(b']')?;
                match base {
                    Operand::Register(register) => {
                        Operand::Memory(Base::Register(register), offset)
                    }
                    Operand::Variable(variable) => {
                        Operand::Memory(Base::Variable(variable), offset)
                    }
                    Operand::Symbol(symbol) => Operand::Memory(Base::Symbol(symbol), offset),
                    Operand::Integer(value) => Operand::Memory(Base::None, value as i64 + offset),
                    Operand::Memory(base, inner) => Operand::Memory(base, inner + offset),
                    _ => return self.wrong("not an address"),
                }
            }
            Token::Sign(b'!') => {
                self.advance()?;
                match self.simple(false)? {
                    Operand::Register(register) => Operand::Not(register),
                    _ => return self.wrong("not a predicate"),
                }
            }
            Token::Sign(b'-') => {
                self.advance()?;
                match self.advance()? {
                    Token::Integer(value) => Operand::Integer(-value),
                    Token::Double(bits) => Operand::Double((-f64::from_bits(bits)).to_bits()),
                    Token::Single(bits) => Operand::Single(bits ^ 1 << 31),
                    _ => return self.wrong("not a number"),
                }
            }
            Token::Integer(value) => {
                self.advance()?;
                Operand::Integer(value)
            }
            Token::Single(bits) => {
                self.advance()?;
                Operand::Single(bits)
            }
            Token::Double(bits) => {
                self.advance()?;
                Operand::Double(bits)
            }
            Token::Word(word) => {
                self.advance()?;
                if jumps && !matches!(self.lookup(word), Some(Name::Register(_))) {
                    return Ok(Operand::Label(word.to_string()));
                }
                match self.lookup(word) {
                    Some(Name::Register(register)) => Operand::Register(register),
                    Some(Name::Variable(variable)) => {
                        if self.accept(b'+')? {
                            let offset = self.integer()? as i64;
                            Operand::Memory(Base::Variable(variable), offset)
                        } else {
                            Operand::Variable(variable)
                        }
                    }
                    _ if word == "_" => Operand::Nothing,
                    _ if word == "WARP_SZ" => Operand::Integer(32),
                    _ if special(word) => Operand::Special(word.to_string()),
                    _ if word.starts_with('%') && !word.starts_with("%_") => {
                        return self.wrong(format_args!("no register {word}"));
                    }
                    _ => {
                        if self.accept(b'+')? {
                            let offset = self.integer()? as i64;
                            return Ok(Operand::Memory(Base::Symbol(word.to_string()), offset));
                        }
                        Operand::Symbol(word.to_string())
                    }
                }
            }
            _ => return self.wrong("not an operand"),
        })
    }
}
